"""A fit that fails, or is interrupted, changes nothing of the estimator: old model or new model, never half of each."""

import numpy as np
import pandas as pd
import pytest

import treecdf.estimators.compositional
import treecdf.estimators.fitting
from treecdf import CompositionalFlow, TreeFlowRegressor, load_model

RNG = np.random.default_rng(0)
N = 80
FRAME = pd.DataFrame({"size": RNG.normal(size=N), "city": np.where(RNG.random(N) < 0.7, "Bern", "Oslo")})
Y = FRAME["size"].to_numpy() + np.where(FRAME["city"] == "Bern", 5.0, -5.0) + 0.1 * RNG.normal(size=N)
# The other city is the common one here: a half-changed model would swap their meaning.
OTHER = FRAME.assign(city=np.where(FRAME["city"] == "Bern", "Oslo", "Bern"))


def model(**settings):
    return TreeFlowRegressor(effort="fast", max_trees=3, random_state=0, **settings)


def fail(*args, **kwargs):
    raise KeyboardInterrupt


def unchanged(fitted, before, path):
    """Attributes are the same objects, and predictions and a saved file are those of the old model."""
    assert vars(fitted).keys() == before.keys()
    for name, value in before.items():
        assert vars(fitted)[name] is value, name
    expected = fitted.log_prob(FRAME, Y)
    fitted.save(path)
    np.testing.assert_array_equal(load_model(path).log_prob(FRAME, Y), expected)


BAD_FITS = {
    "outcomes": lambda m, _: m.fit(OTHER, np.full(N, np.nan)),
    "one column": lambda m, _: m.fit(OTHER[["size"]], Y[:-1]),
    "no rows": lambda m, _: m.fit(OTHER[:0], Y[:0]),
    "dates": lambda m, _: m.fit(OTHER, pd.date_range("2020", periods=N)),
    "weights": lambda m, _: m.fit(OTHER, Y, sample_weight=np.zeros(N)),
    "validation": lambda m, _: m.fit(OTHER, Y, X_val=OTHER[["size"]], y_val=Y),
    "a parameter": lambda m, _: m.set_params(c0=2.0).fit(OTHER, Y),
    "a file that is not there": lambda m, path: m.fit_parquet(path / "none.parquet", "y"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_a_refused_refit_leaves_the_old_model(name, tmp_path):
    fitted = model().fit(FRAME, Y)
    before = dict(vars(fitted))
    with pytest.raises((ValueError, OSError)):
        BAD_FITS[name](fitted, tmp_path)
    fitted.set_params(c0=0.05)
    before["c0"] = fitted.c0
    unchanged(fitted, before, tmp_path / "model.tcdf")


@pytest.mark.parametrize("where", ["learn_table", "learn_recording", "make_plan", "fit_ensemble", "importances"])
def test_an_interrupted_refit_leaves_the_old_model(where, tmp_path, monkeypatch):
    fitted = model().fit(FRAME, Y)
    before = dict(vars(fitted))
    with monkeypatch.context() as patch:
        patch.setattr(treecdf.estimators.fitting, where, fail)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(OTHER, Y)
    unchanged(fitted, before, tmp_path / "model.tcdf")


@pytest.mark.parametrize(("where", "base"), [("fit_pieces", "box"), ("fit_table", "auto"), ("importances", "auto")])
def test_an_interrupted_refit_from_files_leaves_the_old_model(where, base, tmp_path, monkeypatch):
    OTHER.assign(y=Y).to_parquet(tmp_path / "rows.parquet")
    fitted = model().set_params(base=base).fit(FRAME, Y)
    before = dict(vars(fitted))
    with monkeypatch.context() as patch:
        patch.setattr(treecdf.estimators.fitting, where, fail)
        patch.setattr(treecdf.estimators.fitting, "ROWS_READ_WHOLE", 0)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit_parquet(tmp_path / "rows.parquet", "y")
    unchanged(fitted, before, tmp_path / "model.tcdf")


def test_an_interrupted_first_fit_leaves_no_model(monkeypatch):
    unfitted = model()
    monkeypatch.setattr(treecdf.estimators.fitting, "importances", fail)
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(FRAME, Y)
    assert not [name for name in vars(unfitted) if name.endswith("_")]


def test_a_refit_forgets_what_the_new_table_does_not_have():
    fitted = model().fit(FRAME, Y).fit(FRAME[["size"]].to_numpy(), Y)
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.n_features_in_ == 1


def test_an_interrupted_refit_of_compositions_leaves_the_old_model(monkeypatch):
    x = RNG.normal(size=(60, 1))
    y = RNG.dirichlet([1, 2, 3], 60)
    fitted = CompositionalFlow(random_state=0).fit(x, y)
    expected, before = fitted.log_prob(x, y), dict(vars(fitted))
    with monkeypatch.context() as patch:
        patch.setattr(treecdf.estimators.compositional, "fit_link", fail)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(np.column_stack([x, x]), y[:, ::-1])
    assert vars(fitted).keys() == before.keys()
    np.testing.assert_array_equal(fitted.log_prob(x, y), expected)
