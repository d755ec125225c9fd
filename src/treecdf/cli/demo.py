"""An embedded example with a known truth: two branches that part, cross and widen as x grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import norm

from treecdf._common.typing import Array
from treecdf.cli.output import write_picture
from treecdf.estimators.regressor import TreeFlowRegressor


def _branches(x: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Weight of the upper branch, and means and standard deviations of both, each of the shape of x."""
    weight = 0.3 + 0.4 * (x + 1) / 2
    return weight, 1.5 * np.sin(3 * x), 0.15 + 0.15 * (x + 1), -1.2 * x - 1.0, np.full_like(x, 0.15)


def sample(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Covariates (n, 1) and outcomes (n,)."""
    x = rng.uniform(-1, 1, n)
    weight, upper, upper_sd, lower, lower_sd = _branches(x)
    chosen = rng.random(n) < weight
    return x[:, None], rng.normal(np.where(chosen, upper, lower), np.where(chosen, upper_sd, lower_sd))


def density(x: Array, y: Array) -> Array:
    """The true p(y | x)."""
    weight, upper, upper_sd, lower, lower_sd = _branches(x)
    return weight * norm.pdf(y, upper, upper_sd) + (1 - weight) * norm.pdf(y, lower, lower_sd)


def run_demo(picture: Path | None, say: Callable[[str], object] = print) -> dict[str, float]:
    """Fit the example, print how well it went, draw it; return the figures."""
    rng = np.random.default_rng(0)
    x, y = sample(3000, rng)
    x_test, y_test = sample(1000, rng)
    say("treecdf demo: 3000 rows of two branches that part, cross and widen as x grows")
    # The first fit of an installation also compiles; that is told apart from the fit itself.
    start = time.perf_counter()
    TreeFlowRegressor(max_trees=1, random_state=0).fit(x[:200], y[:200])
    warm = time.perf_counter()
    model = TreeFlowRegressor(random_state=0, verbose=1).fit(x, y)
    fitted = time.perf_counter()
    log_prob = model.log_prob(x_test, y_test)
    scored = time.perf_counter()
    draws = model.sample(x_test, n_samples=100, random_state=0)
    drawn = time.perf_counter()
    distribution = model.predict_distribution(x_test)
    low, high = distribution.interval(0.9)
    figures = {
        "log_likelihood": float(log_prob.mean()),
        "true_log_likelihood": float(np.log(density(x_test[:, 0], y_test)).mean()),
        "crps": float(distribution.crps(y_test).mean()),
        "coverage_90": float(((low <= y_test) & (y_test <= high)).mean()),
        "warm_up_seconds": warm - start,
        "fit_seconds": fitted - warm,
        "log_prob_seconds": scored - fitted,
        "sample_seconds": drawn - scored,
    }
    say(f"  loading or compiling kernels      {figures['warm_up_seconds']:8.2f} s")
    say(f"  fit, {model.n_trees_} trees                   {figures['fit_seconds']:8.2f} s")
    say(f"  log density of 1000 new rows      {figures['log_prob_seconds']:8.3f} s")
    say(f"  {draws.size} samples                    {figures['sample_seconds']:8.2f} s")
    truth = f"(the truth: {figures['true_log_likelihood']:.3f})"
    say(f"  log-likelihood of the new rows    {figures['log_likelihood']:8.3f}   {truth}")
    say(f"  CRPS                              {figures['crps']:8.4f}")
    say(f"  coverage of the 90 % interval     {100 * figures['coverage_90']:8.1f} %")
    if picture is not None:
        _draw(model, x, y, picture)
        say(f"  picture                           {picture}")
    return figures


def _draw(model: TreeFlowRegressor, x: Array, y: Array, picture: Path) -> None:
    """The true and the learnt conditional density side by side, with some of the training rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid_x, grid_y = np.linspace(-1, 1, 160), np.linspace(-3.2, 3.2, 240)
    truth = density(grid_x[:, None], grid_y[None, :])
    points = np.broadcast_to(grid_y, (len(grid_x), len(grid_y)))
    learnt = model.predict_distribution(grid_x[:, None]).pdf(points)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    axes[0].scatter(x[:1500, 0], y[:1500], s=3, alpha=0.5, color="#30507a", linewidths=0)
    for axis, values in zip(axes[1:], (truth, learnt), strict=True):
        axis.pcolormesh(grid_x, grid_y, values.T, vmin=0, vmax=truth.max(), cmap="magma_r", rasterized=True)
    for axis, title in zip(axes, ("training rows", "true p(y | x)", "learnt p(y | x)"), strict=True):
        axis.set(title=title, xlabel="x", xlim=(-1, 1), ylim=(-3.2, 3.2))
    axes[0].set_ylabel("y")
    write_picture(picture, figure)
    plt.close(figure)
