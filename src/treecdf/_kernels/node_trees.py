"""Newton boosting of small trees on binned covariates, all nodes of a level of the flow's tree at once."""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel
from treecdf._kernels.histogram import grow_weighted


@ordered_kernel
def boost_nodes(
    codes, rows, node, left, weight, n_bins, min_rows, ridge, rate, score, column, cut, missing_left, leaf, log_lik
):
    """Boost the logistic loss of the labels `left` (m,), one tree at every node and round; fill its arrays.

    codes (q, m); rows: those in nodes that have something to learn; node (m,) of each row. score (m,) are the
    log-odds to start with and ends as those reached. column, cut, missing_left (rounds, k, 2^D - 1) and
    leaf (rounds, k, 2^D, 1), which includes the learning rate, are the trees; log_lik (k,) gets what all rows reach.
    """
    m, columns = node.size, np.arange(codes.shape[0])
    gradient, hessian, place = np.empty((m, 1)), np.empty((m, 1)), np.empty(m, np.int64)
    for t in range(leaf.shape[0]):
        for i in rows:
            p = 1.0 / (1.0 + np.exp(-score[i]))
            gradient[i, 0] = weight[i] * (p - left[i])
            hessian[i, 0] = weight[i] * p * (1.0 - p)
            place[i] = node[i]
        tree = (column[t], cut[t], missing_left[t], leaf[t])
        grow_weighted(codes, rows, place, gradient, hessian, weight, columns, n_bins, min_rows, ridge, *tree)
        leaf[t] *= rate
        leaves = leaf[t].reshape(-1)
        for i in rows:
            score[i] += leaves[place[i]]
    for i in range(m):
        sign = 1.0 if left[i] > 0.0 else -1.0
        log_lik[node[i]] -= weight[i] * (max(-sign * score[i], 0.0) + np.log1p(np.exp(-abs(score[i]))))
