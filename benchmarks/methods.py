"""Named settings of our estimator, and the peers: METHODS[name](random_state, d) builds one. All run on one thread."""

from functools import partial

from benchmarks.peers import PEERS, PEERS_OF_MORE, PEERS_OF_SHAPES
from benchmarks.peers.common import Peer
from benchmarks.without.parts import PARTS, without


def _paper(**overrides):
    from treecdf import TreeFlowRegressor

    return TreeFlowRegressor.paper(n_jobs=1, **overrides)


def _default(**overrides):
    from treecdf import TreeFlowRegressor

    return TreeFlowRegressor(n_jobs=1, **overrides)


def _on_learners(name: str, *args, **overrides):
    """A conditional base of one mean learner."""
    from treecdf.bases import learners

    return _default(base=[getattr(learners, name)(*args)], **overrides)


def _stages(*which: int, max_depth: int = 6):
    """Stages of `paper()` by number, 0 logistic and 1 MLP, with the one depth of the paper's ablation."""
    from treecdf import Stage

    classifiers = [stage.classifier for stage in _paper().stages]
    return [Stage(classifier=classifiers[k], max_depth=max_depth) for k in which]


def _n_rotations(d: int) -> int:
    """As in the paper: 12 of two outcomes, 6 in each plane of more."""
    return 12 if d == 2 else 6


def _rotated(d: int, **overrides):
    return _paper(rotations=_n_rotations(d), **overrides)


def _weighed(d: int, random_state: int, **how):
    """The settings of the paper's comparison of partitions, weighed in another way."""
    return _rotated(d, eta=0.01, random_state=random_state, **how)


def _without(part: str, random_state: int, d: int):
    return without(part, random_state=random_state)


METHODS = {
    # One outcome, or several without rotations
    "lr": lambda random_state, d: _paper(stages=_stages(0), random_state=random_state),
    "mlp": lambda random_state, d: _paper(stages=_stages(1), random_state=random_state),
    "full": lambda random_state, d: _paper(stages=_stages(0, 1), random_state=random_state),
    "middle": lambda random_state, d: _paper(stages=_stages(0, 1), split_search="middle", random_state=random_state),
    "paper": lambda random_state, d: _paper(random_state=random_state),
    "exhaustive": lambda random_state, d: _paper(split_search="exhaustive", random_state=random_state),
    "paper_eta01": lambda random_state, d: _paper(eta=0.01, random_state=random_state),
    "gamma0": lambda random_state, d: _paper(gamma=0.0, random_state=random_state),
    "c0_05_gamma_1": lambda random_state, d: _paper(c0=0.05, gamma=0.1, random_state=random_state),
    "c0_1_gamma_1": lambda random_state, d: _paper(c0=0.1, gamma=0.1, random_state=random_state),
    "box": lambda random_state, d: _default(base="box", structure="joint", random_state=random_state),
    # What "auto" makes of a table
    "treecdf": lambda random_state, d: _default(random_state=random_state),
    "treecdf_fast": lambda random_state, d: _default(effort="fast", random_state=random_state),
    "treecdf_best": lambda random_state, d: _default(effort="best", random_state=random_state),
    # Its parts: one mean learner, their stack, the trees of the flow; the other families are the rest
    "linear_base": lambda random_state, d: _on_learners("Polynomial", 1, max_trees=0, random_state=random_state),
    "boosted_base": lambda random_state, d: _on_learners("BoostedMean", 5, max_trees=0, random_state=random_state),
    "process_base": lambda random_state, d: _on_learners("GaussianProcess", max_trees=0, random_state=random_state),
    "stacked_base": lambda random_state, d: _default(base="conditional", max_trees=0, random_state=random_state),
    "conditional": lambda random_state, d: _default(base="conditional", random_state=random_state),
    # Mixtures of rotated flows, weighed by mean likelihoods in 8 regions
    "rotated": lambda random_state, d: _rotated(d, random_state=random_state),
    "rotated_equal": lambda random_state, d: _rotated(d, weights="equal", random_state=random_state),
    # With a smaller penalty: other regions, and other weights in the same 8
    "rotated_eta01": lambda random_state, d: _rotated(d, eta=0.01, random_state=random_state),
    "regions4": lambda random_state, d: _weighed(d, random_state, regions=4),
    "regions_hdbscan": lambda random_state, d: _weighed(d, random_state, regions="hdbscan"),
    "eta01_equal": lambda random_state, d: _weighed(d, random_state, weights="equal"),
    "eta01_stacked": lambda random_state, d: _weighed(d, random_state, weights="stacked"),
    "eta01_product": lambda random_state, d: _weighed(d, random_state, weights="likelihood"),
    # The default with a part taken out
    **{f"without_{part}": partial(_without, part) for part in PARTS},
    **PEERS,
    **PEERS_OF_SHAPES,
    **PEERS_OF_MORE,
}


def settings(model) -> dict:
    """The parameters in which our estimator differs from its default, or what a peer tells of itself, as JSON."""
    if isinstance(model, Peer):
        return model.told()
    usual = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    lacks = {"without": model.lacks} if hasattr(model, "lacks") else {}
    return lacks | {
        name: value if isinstance(value, int | float | str | None) else repr(value)
        for name, value in given.items()
        if name not in ("random_state", "n_jobs") and repr(value) != repr(usual[name])
    }
