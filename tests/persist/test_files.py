"""Model files: the same model comes back, and nothing else is ever loaded."""

import functools
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression

import treecdf
from tests import fuzz_files
from tests.fuzz_files import memory_of_load, pack, pack_text, predictions, rows, unpack
from treecdf import CompositionalFlow, Logistic, ModelFileError, Stage, TreeFlowRegressor, load_model
from treecdf.bases.learners import Polynomial
from treecdf.persist.checks.models import CHECKS, check_compositional
from treecdf.persist.format import VERSION

NAMES = list(fuzz_files.small_models())


@functools.cache
def fitted(name):
    return fuzz_files.fit(name)


@functools.cache
def content(name, directory):
    path = directory / f"{name}.treecdf"
    fitted(name).save(path)
    return path.read_bytes()


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.treecdf"


def parts(model):
    """All parts of a fitted model, by class, each once."""
    found, left = {}, list(vars(model).values())
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left += part
        elif type(part) in CHECKS and id(part) not in found:
            found[id(part)] = part
            left += vars(part).values()
    return list(found.values())


def refused(data, path, match):
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=match):
        load_model(path)


# The same model comes back


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_same_to_the_last_bit(name, path):
    model = fitted(name)
    model.save(path)
    loaded = load_model(path)
    assert np.array_equal(predictions(model), predictions(loaded), equal_nan=True)
    assert np.array_equal(predictions(loaded), predictions(load_model(path)), equal_nan=True)


def test_a_model_of_compositions_comes_back(path):
    model = fitted("compositions")
    model.save(path)
    loaded = load_model(path)
    assert type(loaded) is CompositionalFlow
    assert repr(loaded) == repr(model)
    assert (loaded.n_taxa_, loaded.n_features_in_) == (4, 3)
    np.testing.assert_array_equal(loaded.order_, model.order_)
    x, y = rows()
    again = loaded.fit(x, fuzz_files.compositions(y))
    assert np.array_equal(predictions(again), predictions(model))
    default = CompositionalFlow(normalize=True, random_state=0).fit(x, fuzz_files.compositions(y))
    default.save(path)
    assert repr(load_model(path)) == repr(default)
    assert np.array_equal(predictions(load_model(path)), predictions(default))
    with pytest.raises(NotFittedError):
        CompositionalFlow().save(path)


def test_a_generator_inside_the_flow_of_compositions_is_not_kept(path):
    x, y = rows()
    flow = TreeFlowRegressor(base="box", max_trees=1, random_state=np.random.default_rng(0), checkpoint=None)
    model = CompositionalFlow(flow=flow, random_state=0).fit(x, fuzz_files.compositions(y))
    model.save(path)
    assert load_model(path).flow.random_state is None
    with pytest.raises(ValueError, match="c0"):
        model.set_params(flow__c0=7).save(path)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("compositions", "counts")])
def test_fitted_attributes_and_parameters_come_back(name, path):
    model = fitted(name)
    model.save(path)
    loaded = load_model(path)
    assert loaded.summary() == model.summary()
    assert list(loaded.history_) == list(model.history_)
    for key, column in model.history_.items():
        np.testing.assert_array_equal(loaded.history_[key], column)
        assert loaded.history_[key].dtype == column.dtype
    for key in ("n_trees_", "n_features_in_", "n_outcomes_"):
        assert getattr(loaded, key) == getattr(model, key)
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)
    np.testing.assert_array_equal(loaded.family_weights_, model.family_weights_)
    assert repr(loaded) == repr(model)
    for own, other in zip(model.families_, loaded.families_, strict=True):
        np.testing.assert_array_equal(own.left_out, other.left_out)


@pytest.mark.parametrize("name", NAMES)
def test_shared_parts_come_back_as_one_object(name, path):
    model = fitted(name)
    model.save(path)
    own, other = parts(model), parts(load_model(path))
    assert sorted(type(part).__name__ for part in own) == sorted(type(part).__name__ for part in other)


def test_the_models_have_every_part_there_is():
    assert {type(part) for name in NAMES for part in parts(fitted(name))} == set(CHECKS)


def test_flows_share_their_base_after_loading(path):
    x = np.random.default_rng(0).normal(size=(200, 1))
    y = np.where(x[:, 0] > 0, 2.0, -2.0) + np.random.default_rng(1).exponential(size=200)
    stages = [Stage(Logistic(), 3)]
    TreeFlowRegressor(base=[Polynomial(1)], stages=stages, max_trees=4, random_state=0).fit(x, y).save(path)
    members = load_model(path).families_[0].members
    assert len(members) > 1
    assert all(member.base is members[0].base for member in members)


def test_arrays_are_plain_and_writable(path):
    """Kernels are compiled for such arrays only."""
    fitted("paper").save(path)
    for block in load_model(path).mixture_.members[0].stages:
        for array in (block.nodes, block.theta, block.roots):
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.flags.aligned


def test_names_of_columns_come_back(path):
    x, y = rows()
    frame = pd.DataFrame(x, columns=["a", "bé", "c"])
    model = TreeFlowRegressor(base="box", max_trees=2, random_state=0).fit(frame, y[:, 0])
    model.save(path)
    loaded = load_model(path)
    np.testing.assert_array_equal(loaded.feature_names_in_, ["a", "bé", "c"])
    assert loaded.feature_names_in_.dtype == object
    np.testing.assert_array_equal(loaded.log_prob(frame, y[:, 0]), model.log_prob(frame, y[:, 0]))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


def test_a_loaded_model_can_be_pickled_saved_and_fitted_again(path):
    model = fitted("rotations")
    model.save(path)
    loaded, data = load_model(path), path.read_bytes()
    assert np.array_equal(predictions(pickle.loads(pickle.dumps(loaded))), predictions(model))
    loaded.save(path)
    assert path.read_bytes() == data
    x, y = rows()
    assert np.array_equal(predictions(loaded.fit(x, y)), predictions(model))


def test_parameters_of_all_kinds_come_back(path):
    turns = [np.eye(2), np.asfortranarray([[0.6, 0.8], [-0.8, 0.6]])]
    x, y = rows()
    model = TreeFlowRegressor(
        base="box", rotations=turns, max_trees=1, stages=[Stage(Logistic(C=np.float64(0.5)), 2)], n_jobs=np.int64(1)
    )
    model.set_params(random_state=np.random.default_rng(0)).fit(x, y)
    model.save(path)
    loaded = load_model(path)
    np.testing.assert_array_equal(loaded.rotations, turns)
    assert loaded.stages == model.stages
    assert loaded.random_state is None
    matrix = loaded.mixture_.members[1].base.rotation.matrix
    assert matrix.flags.f_contiguous == model.mixture_.members[1].base.rotation.matrix.flags.f_contiguous
    assert np.array_equal(predictions(loaded), predictions(model))


def test_of_very_many_rows_only_the_mean_log_density_is_kept(path, monkeypatch):
    monkeypatch.setattr("treecdf.persist.files._MOST_LEFT_OUT", 50)
    model = fitted("fast")
    model.save(path)
    loaded = load_model(path)
    assert loaded.families_[0].left_out.shape == (1,)
    assert loaded.summary() == model.summary()
    assert np.array_equal(predictions(model), predictions(loaded))


def test_many_names_of_levels_come_back(path):
    """They are no items of the JSON, of which there may not be many."""
    x, y = rows(n=400)
    frame = pd.DataFrame({"a": x[:, 0], "b": [f"level {k % 300}" for k in range(400)]})
    model = TreeFlowRegressor(base="box", max_trees=1, random_state=0).fit(frame, y[:, 0])
    model.save(path)
    document, _ = unpack(path.read_bytes())
    assert "level 1" not in json.dumps(document)
    loaded = load_model(path)
    assert loaded.covariates_.columns[1].levels == model.covariates_.columns[1].levels
    np.testing.assert_array_equal(loaded.log_prob(frame, y[:, 0]), model.log_prob(frame, y[:, 0]))


def test_more_texts_than_the_size_allows_are_stored_plainly(path, monkeypatch):
    monkeypatch.setattr("treecdf.persist.format._FEW_ITEMS", 0)
    monkeypatch.setattr("treecdf.persist.format._BYTES_OF_ITEM", 1)
    model = fitted("frame")
    model.save(path)
    packed = path.stat().st_size
    monkeypatch.setattr("treecdf.persist.format._BYTES_OF_PIECE", packed)
    with pytest.raises(ModelFileError, match="fewer pieces"):
        load_model(path)
    model.save(path)
    assert path.stat().st_size > packed


def test_a_model_that_deflates_too_well_is_stored(path, monkeypatch):
    """So that a reader need not believe in files that grow a hundredfold."""
    model = fitted("nodes")
    model.save(path)
    packed = path.stat().st_size
    monkeypatch.setattr("treecdf.persist.format._MOST_PACKED", 1)
    monkeypatch.setattr("treecdf.persist.format._SMALL", 0)
    model.save(path)
    assert path.stat().st_size > packed
    assert np.array_equal(predictions(model), predictions(load_model(path)))


def test_a_file_is_small_and_the_same_for_the_same_model(path, tmp_path):
    fitted("paper").save(path)
    fitted("paper").save(tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()
    assert path.stat().st_size < 3000 * fitted("paper").n_trees_


# What cannot be saved says so


@pytest.mark.parametrize(
    ("parameters", "d", "match"),
    [
        ({"base": LinearRegression()}, 1, r"base.*LinearRegression.*skops or joblib"),
        ({"base": "box", "stages": [Stage(LogisticRegression(), 2)]}, 1, r"stages\[0\].classifier.*LogisticRegression"),
        ({"rotations": 2, "weights": "stacked", "regions": KMeans(2, n_init=1)}, 2, r"regions.*KMeans"),
    ],
)
def test_parts_of_other_libraries_are_named(parameters, d, match, path):
    x, y = rows()
    model = TreeFlowRegressor(**parameters, max_trees=1, random_state=0).fit(x, y[:, :d])
    path.write_bytes(b"before")
    with pytest.raises(ModelFileError, match=match):
        model.save(path)
    fresh = {"base": "auto", "stages": None, "regions": 8}
    with pytest.raises(ModelFileError, match=r"mixture_.*skops or joblib"):
        model.set_params(**fresh).save(path)
    assert path.read_bytes() == b"before"


def test_a_model_that_is_not_fitted_is_not_saved(path):
    with pytest.raises(NotFittedError):
        TreeFlowRegressor().save(path)
    assert not path.exists()


def test_a_broken_model_is_not_saved(path):
    model = pickle.loads(pickle.dumps(fitted("nodes")))
    model.mixture_.members[0].stages[0].nodes["left"][0] = 10**6
    with pytest.raises(ModelFileError, match="children after their parents"):
        model.save(path)
    assert not path.exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_existing_file_survives_a_failure(step, tmp_path, path, monkeypatch):
    fitted("nodes").save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space left"):
        fitted("paper").save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_an_existing_file_is_replaced(path):
    fitted("nodes").save(path)
    fitted("paper").save(str(path))
    assert np.array_equal(predictions(load_model(str(path))), predictions(fitted("paper")))


# What is not a model is refused


def test_a_missing_file_is_an_ordinary_error(path):
    with pytest.raises(FileNotFoundError):
        load_model(path)


@pytest.mark.parametrize(
    "data", [b"", b"P", b"PK", b"PK\3\4", b"PK\5\6" + bytes(18), pickle.dumps([1, 2]), bytes(5000)]
)
def test_something_else_is_refused(data, path):
    refused(data, path, "cannot be loaded")


def test_every_truncation_is_refused(directory, path):
    data = content("nodes", directory)
    for size in np.linspace(0, len(data) - 1, 60).astype(int):
        refused(data[:size], path, "cannot be loaded")


def test_another_zip_is_refused(path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/x")
    refused(file.getvalue(), path, "an entry model.json")


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION + 1, "update treecdf"), (VERSION - 1, "fit the model again, or")]
)
def test_another_version_says_what_to_do(version, advice, directory, path):
    document, entries = unpack(content("nodes", directory))
    expected = f"has version {version} .* reads version {VERSION}: {advice}"
    refused(pack({**document, "version": version}, entries), path, expected)


@pytest.mark.parametrize("name", ["model.json", "model.sha256", "float64.bin", "node.bin"])
def test_checksums_see_what_the_zip_does_not(name, directory, path):
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content("nodes", directory))) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.namelist():
            data = bytearray(old.read(entry))
            if entry == name:
                data[len(data) // 2] ^= 1
            new.writestr(entry, bytes(data))
    refused(file.getvalue(), path, "checksum")


def test_entries_come_once(directory, path):
    document, entries = unpack(content("nodes", directory))
    file = io.BytesIO(pack(document, entries))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr("float64.bin", entries["float64.bin"])
    refused(file.getvalue(), path, "every entry once")


def test_entries_nobody_asked_for_are_refused(directory, path):
    document, entries = unpack(content("nodes", directory))
    refused(pack(document, {**entries, "../evil": b"x"}), path, "entries that model.json names")


def test_many_entries_are_refused(directory, path):
    document, entries = unpack(content("nodes", directory))
    refused(pack(document, entries | {str(k): b"" for k in range(100)}), path, "small zip directory")


def test_a_bomb_is_not_unpacked(directory, path):
    document, entries = unpack(content("nodes", directory))
    document["pools"]["float32"] = [25_000_000, ""]
    data = pack(document, entries | {"float32.bin": bytes(100_000_000)})
    refused(data, path, "so small when deflated")
    assert memory_of_load(data, path) < 20 * len(data)


def test_a_size_that_lies_is_refused(directory, path):
    """The directory may say what it likes about an entry."""
    data = bytearray(content("nodes", directory))
    at = data.rindex(b"node.bin") - 46
    assert data[at : at + 4] == b"PK\1\2"
    (size,) = struct.unpack_from("<L", data, at + 24)
    for lie in (0, size - 56, size + 56, 2**31, 2**32 - 1):
        struct.pack_into("<L", data, at + 24, lie)
        refused(bytes(data), path, "cannot be loaded")


def hostile_texts():
    return {
        "deep": b"[" * 40_000,
        "deep whole": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
        "many": b"[" + b"[]," * 1_000_000 + b"[]]",
        "strings": b"[" + b'"a",' * 1_000_000 + b"1]",
        "long integer": b"1" * 100_000,
        "constant": b'{"format": NaN}',
        "not text": b"\xff\xfe\x00",
        "list": b"[]",
        "nothing": b"",
    }


@pytest.mark.parametrize("kind", hostile_texts())
def test_hostile_json_is_refused(kind, path):
    refused(pack_text(hostile_texts()[kind], {}), path, "cannot be loaded")


def test_json_with_as_many_items_as_may_be_takes_little_memory(path):
    most = {"items": b"{}," * 24_000, "strings": b'"ab",' * 24_000, "numbers": b"1.5," * 49_000}
    for items in most.values():
        data = pack_text(b"[" + items + b"0]", {}, zipfile.ZIP_STORED)
        refused(data, path, "the format")
        assert memory_of_load(data, path) < 10e6


def _set(path, value):
    """An edit of the document: the value at a path of keys."""

    def edit(document, arrays):
        *way, last = path
        for key in way:
            document = document[key]
        document[last] = value

    return edit


def _number(dtype, field, at, value):
    """An edit of one number."""

    def edit(document, arrays):
        pool = arrays[dtype]
        (pool if field is None else pool[field])[at] = value

    return edit


def _object(document, kind):
    return next(fields for name, fields in document["objects"] if name == kind)


def _of(kind, field, value):
    """An edit of a field of the first part of a class."""

    def edit(document, arrays):
        own = _object(document, kind)
        assert field in own
        own[field] = value(own[field]) if callable(value) else value

    return edit


def _all(field, value, kind="BoostedScores"):
    """An edit of all numbers of an array of the first part of a class."""

    def edit(document, arrays):
        name, begin, size = _place(document, _object(document, kind)[field]["array"])
        assert size > 0
        arrays[name][begin : begin + size] = value

    return edit


def _more_pools(document, arrays):
    document["pools"]["object"] = document["pools"]["bool"]


DEEP = functools.reduce(lambda inner, _: {"list": [inner]}, range(50), 1)

HOSTILE = {
    "left beyond": ("nodes", _number("node", "left", 0, 10**6), "children after"),
    "left below": ("nodes", _number("node", "left", 0, -2), "children after"),
    "circle": ("nodes", _number("node", "right", 1, 0), "children after"),
    "other tree": ("nodes", _number("node", "right", 0, 9), "children"),
    "axis": ("nodes", _number("node", "axis", 3, 1), "axes"),
    "negative axis": ("nodes", _number("node", "axis", 3, -1), "axes"),
    "depth": ("nodes", _number("node", "depth", 0, 2**30), "levels"),
    "depth of child": ("nodes", _number("node", "depth", 1, 0), "one level below"),
    "cut": ("nodes", _number("node", "cut", 0, np.nan), "cuts"),
    "box": ("nodes", _number("node", "upper", 0, 2.0), "boxes"),
    "rate": ("nodes", _number("node", "rate", 0, np.inf), "rate"),
    "share": ("nodes", _number("node", "left_share", 0, -1.0), "left_share"),
    "unknown class": ("nodes", _set(("objects", 0, 0), "Popen"), "a part this treecdf knows"),
    "unknown field": ("nodes", _set(("objects", 0, 1, "__class__"), 1), "and no others"),
    "later part": ("nodes", _of("TreeFlow", "base", {"object": 10**6}), "an object that is there"),
    "missing field": ("nodes", lambda document, _: _object(document, "TreeFlow").pop("base"), "fields of TreeFlow"),
    "wrong part": ("nodes", _of("TreeFlow", "base", lambda own: {"object": 0}), "Support or Student or Conditional"),
    "unknown attribute": ("nodes", _set(("fitted", "predict"), 1), "attributes of a fitted model"),
    "no attribute": ("nodes", lambda document, _: document["fitted"].pop("mixture_"), "the attribute mixture_"),
    "unknown parameter": ("nodes", _set(("parameters", "evil"), 1), "evil"),
    "bad parameter": ("nodes", _set(("parameters", "c0"), -1), "c0"),
    "bad setting": ("nodes", _of("MLP", "hidden", {"tuple": [-1]}), "hidden"),
    "covariates": ("nodes", _set(("fitted", "n_features_in_"), 2), "2 of columns"),
    "outcomes": ("nodes", _set(("fitted", "n_outcomes_"), 2), "2 of outcome_names_"),
    "huge side": ("nodes", _set(("arrays", 0, 1), [0, 2**60]), "huge side"),
    "negative side": ("nodes", _set(("arrays", 0, 1), [-1, -3]), "sides of arrays"),
    "more numbers": ("nodes", _set(("arrays", 0, 1), [2**40]), "no more"),
    "fewer numbers": ("nodes", lambda document, _: document["arrays"].pop(), "all numbers"),
    "unknown dtype": ("nodes", _more_pools, "entries"),
    "nested": ("nodes", _set(("parameters", "bounds"), DEEP), "within"),
    "rows of history": ("nodes", _set(("fitted", "history_"), {"dict": {"a": 1}}), "history_"),
    "chain order": ("several", _of("Chain", "order", {"tuple": [0, 0]}), "order of the outcomes"),
    "chain in itself": ("several", lambda document, _: _nest_chains(document), "mixtures of flows"),
    "column": ("fast", _all("column", 10**6), "column between"),
    "missing side": ("fast", _all("missing_left", -7), "missing_left"),
    "component": ("fast", _all("components", 50, "Mean"), "components"),
    "bin edges": ("fast", _of("Bins", "edges", {"tuple": []}), "edges"),
    "degree": ("fast", _of("FittedPolynomial", "degree", 3), "degree|shape"),
    "huge degree": ("fast", _of("FittedPolynomial", "degree", 10**9), "degree"),
    "metric": ("near", _all("metric", -1.0, "Nearness"), "metric"),
    "nearest rows": ("near", _all("points", np.nan, "Nearness"), "points"),
    "outcomes of rows": ("near", _of("Nearness", "values", lambda own: {"array": 0}), "values"),
    "nearest": ("near", _all("smallest", np.inf, "Nearness"), "smallest"),
    "features of scales": ("near", _of("Stacked", "near", None), "edges"),
    "region": ("rotations", _all("region", 99, "NearestPoint"), "region"),
    "weights": ("rotations", _all("log_weights", -9.0, "Mixture"), "sum to one"),
    "matrix": ("rotations", _all("matrix", 1.0, "Rotation"), "orthogonal"),
    "kind": ("nodes", _all("kind", 3, "TreeSequence"), "kernels know"),
    "order of taxa": ("compositions", _all("order", 0, "Presence"), "order of the taxa"),
    "taxa": ("compositions", _set(("fitted", "n_taxa_"), 2), "order_"),
    "huge number of taxa": ("compositions", _set(("fitted", "n_taxa_"), 10**9), "2 to 1000000 taxa"),
    "taxon twice": ("compositions", lambda document, arrays: _repeat_taxon(document, arrays), "every taxon once"),
    "features of a link": ("compositions", lambda document, _: _few_features(document), "features of a log ratio"),
    "covariates of a link": ("compositions", lambda document, _: _narrow(document), r"\(4,\); got \(3,\)"),
    "huge slopes": ("compositions", _all("slopes", 1e300, "Link"), "slopes"),
    "huge slopes of atoms": ("two atoms", _all("slopes", 1e300, "TiltedScores"), "slopes"),
    "ends of atoms": ("two atoms", _of("TiltedScores", "ends", {"array": 0}), "ends"),
    "knots": ("compositions", _of("Effects", "knots", {"tuple": []}), "knots"),
    "trend": ("compositions", _of("EffectsWithTrend", "trend", {"array": 0}), "trend"),
    "features of a ratio": ("compositions", _of("Link", "slopes", lambda own: {"array": 0}), "slopes"),
    "no links": ("compositions", _set(("fitted", "links_"), {"tuple": []}), "links_"),
    "setting of the flow": ("compositions", _set(("parameters", "flow", "dict", "c0"), 7), "c0"),
    "no flow": ("compositions", _set(("parameters", "flow"), 3), "checksums are right, but"),
    "normalize": ("compositions", _set(("parameters", "normalize"), "no"), "normalize"),
    "depths": ("counts", _all("quantiles", -1.0, "Depths"), "quantiles"),
    "no depths": ("counts", lambda document, _: document["fitted"].pop("depths_"), "links|shape|depths|of columns"),
    "counts without depths": ("compositions", _set(("parameters", "counts"), True), "depths of a model of counts"),
    "certain memory": ("counts", _all("lasting", 1.0, "Memory"), "correlations below one"),
    "no time": ("counts", _all("scale", 0.0, "Memory"), "scale"),
    "memory of other taxa": ("counts", _of("Memory", "passing", lambda own: {"array": 0}), "passing"),
    "checkpoint": ("nodes", _set(("parameters", "checkpoint"), "/somewhere"), "no checkpoint"),
    "checkpoint of the flow": ("compositions", _set(("parameters", "flow", "dict", "checkpoint"), "a"), "no check"),
}  # fmt: skip


def _place(document, spec_number):
    """Pool, first place and size of an array."""
    name, shape, _ = document["arrays"][spec_number]
    before = [spec for spec in document["arrays"][:spec_number] if spec[0] == name]
    return name, sum(int(np.prod(spec[1])) for spec in before), int(np.prod(shape))


def _nest_chains(document):
    """The first chain becomes the only member of a link of the last."""
    chain = next(k for k, (name, _) in enumerate(document["objects"]) if name == "Chain")
    flow = next(own for name, own in document["objects"] if name == "Mixture")
    mixture = ["Mixture", {**flow, "members": {"tuple": [{"object": chain}]}}]
    outer = ["Chain", {"links": {"tuple": [{"object": len(document["objects"])}]}, "order": {"tuple": [0]}}]
    document["objects"] += [mixture, outer]
    last = len(document["objects"]) - 1
    top = document["objects"][document["fitted"]["mixture_"]["object"]][1]
    document["objects"].append(["Mixture", {**top, "members": {"tuple": [{"object": last}]}}])
    document["fitted"]["mixture_"] = {"object": last + 1}


def _repeat_taxon(document, arrays):
    name, begin, size = _place(document, document["fitted"]["order_"]["array"])
    assert size > 1
    arrays[name][begin] = arrays[name][begin + 1]


def _few_features(document):
    """A log ratio is predicted from as many features as there are covariates."""
    standardize = document["objects"][_object(document, "Effects")["standardize"]["object"]][1]
    link = _object(document, "Link")
    link["center"] = link["scale"] = link["slopes"] = standardize["unit"]


def _narrow(document):
    """The flow of a log ratio loses one of its covariates: the standardizer of the presences serves it."""
    of_effects = _object(document, "Effects")["standardize"]
    for name, own in document["objects"]:
        if name == "TreeFlow":
            own["standardize"] = of_effects


@pytest.mark.parametrize("edit", HOSTILE)
def test_hostile_models_are_refused_with_right_checksums(edit, directory, path):
    name, change, match = HOSTILE[edit]
    refused(edited(content(name, directory), change), path, match)


def edited(data, change):
    from treecdf.persist.format import DTYPES

    document, entries = unpack(data)
    arrays = {
        name.removesuffix(".bin"): np.frombuffer(pool, DTYPES[name.removesuffix(".bin")]).copy()
        for name, pool in entries.items()
    }
    change(document, arrays)
    return pack(document, {f"{name}.bin": pool.tobytes() for name, pool in arrays.items()})


def test_presences_and_ratios_are_of_the_same_taxa():
    right = vars(fitted("compositions"))
    check_compositional(right)
    with pytest.raises(ModelFileError, match="presences of the taxa of order_"):
        check_compositional({**right, "order_": right["order_"][:3], "links_": right["links_"][:3]})


def test_hostile_mixtures_of_ratios_are_refused(path):
    x, y = rows()
    CompositionalFlow(normalize=True, random_state=0).fit(x, fuzz_files.compositions(y)).save(path)
    good = path.read_bytes()
    refused(edited(good, _all("slopes", 1e300, "LinearMixture")), path, "slopes")
    few = _of("LinearMixture", "slopes", lambda own: {"array": 0})
    refused(edited(good, few), path, "slopes|log scale, a logit")


def test_an_edit_that_changes_nothing_is_loaded(directory, path):
    """So the refusals above are due to what was changed."""
    for name in ("nodes", "several", "fast", "rotations", "compositions"):
        path.write_bytes(edited(content(name, directory), lambda document, arrays: None))
        assert np.array_equal(predictions(load_model(path)), predictions(fitted(name)))


def test_columns_of_node_trees_are_covariates(directory, path):
    model = fitted("fast")
    place = int(model.mixture_.members[0].stages[0].kind[0])
    assert place == 2
    document, _ = unpack(content("fast", directory))
    theta = _object(document, "TreeSequence")["theta"]["array"]

    def change(document, arrays):
        name, begin, _ = _place(document, theta)
        arrays[name][begin + 1] = 5.0  # three covariates and two of the base: 4 is the last

    refused(edited(content("fast", directory), change), path, "columns of boosted trees")


def test_nothing_is_pickled(directory):
    document, entries = unpack(content("several", directory))
    assert all(name.endswith(".bin") for name in entries)
    assert json.dumps(document, allow_nan=False)
    assert treecdf.load_model is load_model


def test_mutated_files_do_no_harm(directory, tmp_path):
    files = {name: (content(name, directory), predictions(fitted(name))) for name in ("nodes", "fast", "rotations")}
    outcomes, most, _ = fuzz_files.run(files, 300, 0, tmp_path)
    judged = {outcome for outcome, _ in outcomes}
    assert {"refused", "same", "other"} <= judged
    assert most < 1
