"""Loss and gradient of the node classifiers: one pass adds up those of every node of a level.

Rows come arranged (see rows.arrange): sorted_x (q, m), node by node, so that the inner loops run over
neighbouring rows. They are indexed by unsigned numbers: a signed one may count from the end, which has to be checked
row by row and keeps a loop out of the vector units.
"""

import numpy as np

from treecdf._kernels.compiling import kernel, ordered_kernel

TILE = 64

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer that stands in the low bits
_ONE_BITS = np.int64(1023) << 52


@ordered_kernel
def exp_tile(z, n, bits):
    """z[:n] <- exp(z[:n]), z cut to [-700, 700]; no branches and no calls, so that it runs in vector units.

    `bits` (int64) is work space.
    """
    scale = bits.view(np.float64)
    for r in range(n):
        t = min(max(z[r], -700.0), 700.0)
        shifted = t * _LOG2E + _ROUND
        scale[r] = shifted
        power = shifted - _ROUND
        t = t - power * _LN2_HIGH - power * _LN2_LOW
        # Taylor series on |t| <= ln(2) / 2, relative error 2e-16.
        e = 1.0 / 479001600.0
        e = e * t + 1.0 / 39916800.0
        e = e * t + 1.0 / 3628800.0
        e = e * t + 1.0 / 362880.0
        e = e * t + 1.0 / 40320.0
        e = e * t + 1.0 / 5040.0
        e = e * t + 1.0 / 720.0
        e = e * t + 1.0 / 120.0
        e = e * t + 1.0 / 24.0
        e = e * t + 1.0 / 6.0
        e = e * t + 0.5
        e = e * t + 1.0
        z[r] = e * t + 1.0
    for r in range(n):
        bits[r] = (bits[r] << 52) + _ONE_BITS
    for r in range(n):
        z[r] *= scale[r]


@kernel
def cross_entropy(z, n, weight, left, first, work, bits):
    """Weighted cross entropy of the logits z[:n] of rows first:first + n; z[:n] <- weight * (p - left), its derivative.

    work[:n] is left with exp(-|z|); `bits` is work space.
    """
    for r in range(n):
        work[r] = -abs(z[r])
    exp_tile(work, n, bits)
    # A loop that both stores and sums may be compiled in two ways, chosen by where the arrays lie, that round
    # differently: so no loop of this module does both.
    cost = bits.view(np.float64)
    for r in range(n):
        # log(1 + e) for e in (0, 1] by the series of artanh(e / (2 + e)), error below 1e-15.
        s = work[r] / (2.0 + work[r])
        s2 = s * s
        series = 1.0 / 31.0
        series = series * s2 + 1.0 / 29.0
        series = series * s2 + 1.0 / 27.0
        series = series * s2 + 1.0 / 25.0
        series = series * s2 + 1.0 / 23.0
        series = series * s2 + 1.0 / 21.0
        series = series * s2 + 1.0 / 19.0
        series = series * s2 + 1.0 / 17.0
        series = series * s2 + 1.0 / 15.0
        series = series * s2 + 1.0 / 13.0
        series = series * s2 + 1.0 / 11.0
        series = series * s2 + 1.0 / 9.0
        series = series * s2 + 1.0 / 7.0
        series = series * s2 + 1.0 / 5.0
        series = series * s2 + 1.0 / 3.0
        series = series * s2 + 1.0
        softplus = max(z[r], 0.0) + 2.0 * s * series
        cost[r] = weight[np.uint64(first + r)] * (softplus - left[np.uint64(first + r)] * z[r])
        p = (1.0 if z[r] >= 0.0 else work[r]) / (1.0 + work[r])
        z[r] = weight[np.uint64(first + r)] * (p - left[np.uint64(first + r)])
    loss = 0.0
    for r in range(n):
        loss += cost[r]
    return loss


@kernel
def logistic_loss(sorted_x, weight, left, start, active, theta, loss, gradient, hessian):
    """Add loss (k,), gradient (k, 1 + q) and Hessian (k, 1 + q, 1 + q), lower triangle, of the logistic nodes.

    theta (k, 1 + q) has the intercept first.
    """
    q = theta.shape[1] - 1
    z = np.empty(TILE)
    work = np.empty(TILE)
    curvature = np.empty(TILE)
    bits = np.empty(TILE, np.int64)
    for node in range(theta.shape[0]):
        if not active[node]:
            continue
        for first in range(start[node], start[node + 1], TILE):
            t = min(TILE, start[node + 1] - first)
            for r in range(t):
                z[r] = theta[node, 0]
            for j in range(q):
                slope = theta[node, 1 + j]
                for r in range(t):
                    z[r] += slope * sorted_x[j, np.uint64(first + r)]
            loss[node] += cross_entropy(z, t, weight, left, first, work, bits)
            sum_z, sum_c = 0.0, 0.0
            for r in range(t):
                e = work[r]  # exp(-|logit|), left there by the cross entropy
                curvature[r] = weight[np.uint64(first + r)] * e / ((1.0 + e) * (1.0 + e))
            for r in range(t):
                sum_z += z[r]
                sum_c += curvature[r]
            gradient[node, 0] += sum_z
            hessian[node, 0, 0] += sum_c
            for i in range(q):
                sum_z, sum_c = 0.0, 0.0
                for r in range(t):
                    work[r] = curvature[r] * sorted_x[i, np.uint64(first + r)]
                for r in range(t):
                    sum_z += z[r] * sorted_x[i, np.uint64(first + r)]
                    sum_c += work[r]
                gradient[node, 1 + i] += sum_z
                hessian[node, 1 + i, 0] += sum_c
                for j in range(i + 1):
                    sum_c = 0.0
                    for r in range(t):
                        sum_c += work[r] * sorted_x[j, np.uint64(first + r)]
                    hessian[node, 1 + i, 1 + j] += sum_c


@kernel
def add_products(width, to, out, rows, first, n, theta, node, offset, stride):
    """to[out, :width] += the weights theta[node, offset::stride] @ rows[first:first + n, :width]."""
    i = 0
    while i + 4 <= n:
        at = offset + i * stride
        w0, w1 = theta[node, at], theta[node, at + stride]
        w2, w3 = theta[node, at + 2 * stride], theta[node, at + 3 * stride]
        for r in range(width):
            to[out, r] += (
                w0 * rows[first + i, r]
                + w1 * rows[first + i + 1, r]
                + w2 * rows[first + i + 2, r]
                + w3 * rows[first + i + 3, r]
            )
        i += 4
    while i < n:
        w0 = theta[node, offset + i * stride]
        for r in range(width):
            to[out, r] += w0 * rows[first + i, r]
        i += 1


@kernel
def add_dots(width, delta, unit, rows, first, n, gradient, node, offset):
    """gradient[node, offset:offset + n] += rows[first:first + n, :width] @ delta[unit, :width]."""
    i = 0
    while i + 4 <= n:
        d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
        for r in range(width):
            d0 += delta[unit, r] * rows[first + i, r]
            d1 += delta[unit, r] * rows[first + i + 1, r]
            d2 += delta[unit, r] * rows[first + i + 2, r]
            d3 += delta[unit, r] * rows[first + i + 3, r]
        gradient[node, offset + i] += d0
        gradient[node, offset + i + 1] += d1
        gradient[node, offset + i + 2] += d2
        gradient[node, offset + i + 3] += d3
        i += 4
    while i < n:
        d0 = 0.0
        for r in range(width):
            d0 += delta[unit, r] * rows[first + i, r]
        gradient[node, offset + i] += d0
        i += 1


@kernel
def feed_forward(units, width, q, theta, node, hidden):
    """Outputs of all layers of a node's network, below the covariates units[:q]; where the last layer's weights end.

    Also return where its inputs begin among the units.
    """
    n_layers = hidden.size + 1
    offset, below, unit, n_in = 0, 0, q, q
    for layer in range(n_layers):
        n_out = hidden[layer] if layer < n_layers - 1 else 1
        for o in range(n_out):
            bias = theta[node, offset + n_out * n_in + o]
            for r in range(width):
                units[unit + o, r] = bias
            add_products(width, units, unit + o, units, below, n_in, theta, node, offset + o * n_in, 1)
            if layer < n_layers - 1:
                for r in range(width):
                    units[unit + o, r] = max(units[unit + o, r], 0.0)
        offset += n_out * (n_in + 1)
        n_in, below = n_out, unit
        unit += n_out
    return offset, below


@kernel
def mlp_loss(sorted_x, weight, left, start, active, theta, hidden, loss, gradient):
    """Add loss (k,) and gradient (k, P) of the ReLU networks with parameters theta (k, P).

    Parameters go layer by layer: weights (out, in) row by row, then biases (out); `hidden` has the sizes of the
    hidden layers, the last layer has one output. Rows go through the network a tile at a time, a short tile filled
    up to a multiple of the vector length with rows that do not count.
    """
    q = sorted_x.shape[0]
    n_layers = hidden.size + 1
    n_units = q
    for layer in range(n_layers - 1):
        n_units += hidden[layer]
    units = np.zeros((n_units + 1, TILE))  # covariates, then the outputs of all layers, one under the other
    delta = np.zeros((n_units + 1, TILE))  # derivatives of the loss by the units' inputs
    work = np.empty(TILE)
    bits = np.empty(TILE, np.int64)
    # The loop over nodes and tiles stands in logistic_loss too: the bodies share too much state for a function.
    for node in range(theta.shape[0]):
        if not active[node]:
            continue
        for first in range(start[node], start[node + 1], TILE):
            t = min(TILE, start[node + 1] - first)
            width = (t + 7) // 8 * 8
            for i in range(q):
                for r in range(t):
                    units[i, r] = sorted_x[i, np.uint64(first + r)]

            offset, below = feed_forward(units, width, q, theta, node, hidden)
            for r in range(width):
                delta[n_units, r] = units[n_units, r] if r < t else 0.0
            loss[node] += cross_entropy(delta[n_units], t, weight, left, first, work, bits)

            for layer in range(n_layers - 1, -1, -1):
                n_out = hidden[layer] if layer < n_layers - 1 else 1
                n_in = hidden[layer - 1] if layer > 0 else q
                unit = below
                below = unit - n_in
                offset -= n_out * (n_in + 1)
                for o in range(n_out):
                    sum_delta = 0.0
                    for r in range(width):
                        sum_delta += delta[unit + o, r]
                    gradient[node, offset + n_out * n_in + o] += sum_delta
                    add_dots(width, delta, unit + o, units, below, n_in, gradient, node, offset + o * n_in)
                if layer > 0:
                    for i in range(n_in):
                        for r in range(width):
                            delta[below + i, r] = 0.0
                        add_products(width, delta, below + i, delta, unit, n_out, theta, node, offset + i, n_in)
                        for r in range(width):
                            delta[below + i, r] = delta[below + i, r] if units[below + i, r] > 0.0 else 0.0
