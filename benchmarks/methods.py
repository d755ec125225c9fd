"""Named settings of our estimator: METHODS[name](random_state) builds it. All run on one thread."""


def _paper(**overrides):
    from treecdf import TreeFlowRegressor

    return TreeFlowRegressor.paper(n_jobs=1, **overrides)


def _default(**overrides):
    from treecdf import TreeFlowRegressor

    return TreeFlowRegressor(n_jobs=1, **overrides)


def _stages(*which: int, max_depth: int = 6):
    """Stages of `paper()` by number, 0 logistic and 1 MLP, with the one depth of the paper's ablation."""
    from treecdf import Stage

    classifiers = [stage.classifier for stage in _paper().stages]
    return [Stage(classifier=classifiers[k], max_depth=max_depth) for k in which]


METHODS = {
    "lr": lambda random_state: _paper(stages=_stages(0), random_state=random_state),
    "mlp": lambda random_state: _paper(stages=_stages(1), random_state=random_state),
    "full": lambda random_state: _paper(stages=_stages(0, 1), random_state=random_state),
    "middle": lambda random_state: _paper(stages=_stages(0, 1), split_search="middle", random_state=random_state),
    "paper": lambda random_state: _paper(random_state=random_state),
    "gamma0": lambda random_state: _paper(gamma=0.0, random_state=random_state),
    "default": lambda random_state: _default(random_state=random_state),
}


def settings(model) -> dict:
    """The parameters in which an estimator differs from the library's default, as JSON."""
    usual = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    return {
        name: value if isinstance(value, int | float | str | None) else repr(value)
        for name, value in given.items()
        if name not in ("random_state", "n_jobs") and repr(value) != repr(usual[name])
    }
