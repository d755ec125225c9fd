"""What the routes answer, and what they refuse."""

import asyncio
import json
import threading

import numpy as np
import pandas as pd
import pytest

from tests.helpers.small_tables import small_rows
from tests.serving.conftest import Client
from treecdf import TreeFlowRegressor
from treecdf.serving import questions
from treecdf.serving.limits import Limits
from treecdf.serving.served import Served

pytestmark = pytest.mark.filterwarnings("ignore:Column .* such as training rows did not have:UserWarning")
ROWS = [{"area": 70, "zone": "hill", "sold": "2026-02-03"}, {"area": None, "zone": 3.0, "sold": "2026-03-01 12:00"}]
FRAME = pd.DataFrame(
    {
        "area": [70, np.nan],
        "zone": ["hill", "3"],
        "sold": np.array(["2026-02-03", "2026-03-01T12:00"], dtype="M8[us]"),
    }
)
COLUMNS = {"sold": ["2026-02-03", "2026-03-01 12:00"], "zone": ["hill", "3"], "area": [70, None]}


def one(**more):
    return {"rows": ROWS[:1], **more}


# Plain routes


def test_plain_answers_are_those_of_the_model(ask, model):
    truth = model.predict_distribution(FRAME)
    wanted = {
        "mean": {"mean": truth.mean(), "std": truth.std()},
        "quantiles": {"quantiles": truth.icdf([0.05, 0.5, 0.95])},
        "intervals": {"intervals": np.column_stack(truth.interval(0.9))},
    }
    for path, answers in wanted.items():
        for body in ({"rows": ROWS}, {"columns": COLUMNS}):
            status, got = ask().post(f"/{path}", body)
            assert status == 200, got
            assert got["notes"] == []
            for name, values in answers.items():
                np.testing.assert_array_equal(got[name]["price"], values)


def test_densities_and_probabilities_at_one_outcome_or_several(ask, model):
    truth = model.predict_distribution(FRAME)
    for outcomes in ([1, 2.5], [[1, 2, 3], [4, 5, 6]]):
        got = ask().post("/density", {"rows": ROWS, "outcomes": outcomes})[1]
        np.testing.assert_array_equal(got["log_density"], truth.logpdf(outcomes))
        np.testing.assert_allclose(got["density"], truth.pdf(outcomes))
        got = ask().post("/cdf", {"rows": ROWS, "outcomes": outcomes})[1]
        np.testing.assert_array_equal(got["cdf"]["price"], truth.cdf(outcomes))
    named = ask().post("/density", {"rows": ROWS, "outcomes": [{"price": 1}, {"price": 2.5}]})[1]
    np.testing.assert_array_equal(named["log_density"], truth.logpdf([1, 2.5]))


def test_draws_have_a_seed(ask, model):
    truth = model.sample(FRAME, 7, random_state=3)
    np.testing.assert_array_equal(
        ask().post("/samples", {"rows": ROWS, "draws": 7, "seed": 3})[1]["samples"]["price"], truth
    )
    first, second = (ask().post("/samples", one(draws=5))[1]["samples"]["price"] for _ in range(2))
    assert first != second


def test_several_outcomes_are_told_apart_by_their_names(two_outcomes):
    client = Client(two_outcomes)
    rows = small_rows(3, 1)[["size", "zone", "code"]]
    body = {"rows": [dict(zip(rows, row, strict=True)) for row in rows.astype(object).to_numpy().tolist()]}
    truth = two_outcomes.predict_distribution(rows)
    got = client.post("/quantiles", body | {"levels": [0.2, 0.8]})[1]["quantiles"]
    assert list(got) == ["rent", "deposit"]
    np.testing.assert_array_equal(got["deposit"], truth.marginal("deposit").icdf([0.2, 0.8]))
    outcomes = [{"deposit": -2.0, "rent": 2.0}] * 3
    got = Client(two_outcomes).post("/density", body | {"outcomes": outcomes})[1]
    np.testing.assert_array_equal(got["log_density"], truth.logpdf([2.0, -2.0]))
    status, got = Client(two_outcomes).post("/density", body | {"outcomes": [1, 2, 3]})
    assert (status, got["error"]) == (400, "outcomes, row 0: expected an object with the numbers 'rent', 'deposit'")
    got = Client(two_outcomes).post("/samples", body | {"draws": 4, "seed": 0})[1]["samples"]
    np.testing.assert_array_equal(got["rent"], truth.sample(4, 0)[..., 0])


def test_columns_of_an_array_are_numbered():
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(x, x[:, 0])
    status, got = Client(model).post("/mean", {"rows": [{"0": 0.5, "1": -1}]})
    assert status == 200
    np.testing.assert_array_equal(got["mean"]["y"], model.predict([[0.5, -1]]))


def test_impossible_outcomes_have_density_zero_and_no_log():
    x = np.random.default_rng(0).normal(size=(60, 1))
    model = TreeFlowRegressor(effort="fast", max_trees=2, bounds=(0, None), random_state=0).fit(x, x[:, 0] ** 2)
    got = Client(model).post("/density", {"rows": [{"0": 0.5}], "outcomes": [-1]})[1]
    assert (got["density"], got["log_density"]) == ([0.0], [None])


def test_values_that_training_rows_did_not_have_are_noted(ask):
    row = {"area": None, "zone": "sea", "sold": None}
    notes = ask().post("/mean", {"rows": [row, *ROWS]})[1]["notes"]
    assert [note.split(" in ")[0] for note in notes] == ["column 'zone' has values", "column 'sold' has values"]


def test_the_front_page_says_what_can_be_asked(ask):
    status, got = ask().get("/")
    assert status == 200
    assert got["columns"][2] == {"name": "sold", "kind": "date"}
    assert set(got["questions"]) == {f"/{name}" for name in questions.QUESTIONS}


# The Open Inference Protocol

INPUTS = [
    {"name": "area", "datatype": "FP64", "shape": [2], "data": [70, None]},
    {"name": "zone", "datatype": "BYTES", "shape": [2, 1], "data": [["hill"], ["3"]]},
    {"name": "sold", "datatype": "BYTES", "shape": [2, 1], "data": ["2026-02-03", "2026-03-01 12:00"]},
]
OUTCOME = {"name": "price", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}


def test_inference_gives_tensors(ask, model):
    outputs = [
        {"name": "quantiles", "parameters": {"levels": "0.1, 0.5"}},
        {"name": "interval", "parameters": {"level": 0.5}},
        {"name": "log_density"},
        {"name": "cdf"},
        {"name": "samples", "parameters": {"draws": 3, "seed": 1}},
    ]
    truth = model.predict_distribution(FRAME)
    status, got = ask().post("/v2/models/m/infer", {"id": "7", "inputs": [*INPUTS, OUTCOME], "outputs": outputs})
    assert status == 200, got
    assert (got["model_name"], got["id"]) == ("m", "7")
    wanted = {
        "quantiles": truth.icdf([0.1, 0.5]),
        "interval": np.column_stack(truth.interval(0.5)),
        "log_density": truth.logpdf([1, 2.5]),
        "cdf": truth.cdf([1, 2.5]),
        "samples": truth.sample(3, 1),
    }
    assert [tensor["name"] for tensor in got["outputs"]] == list(wanted)
    for tensor in got["outputs"]:
        assert tensor["datatype"] == "FP64"
        np.testing.assert_array_equal(np.reshape(tensor["data"], tensor["shape"]), wanted[tensor["name"]])


def test_inference_without_outputs_gives_mean_std_and_interval(ask):
    got = ask().post("/v2/models/m/versions/1/infer", {"inputs": INPUTS})[1]
    assert [(tensor["name"], tensor["shape"]) for tensor in got["outputs"]] == [
        ("mean", [2]),
        ("std", [2]),
        ("interval", [2, 2]),
    ]


def test_metadata_names_inputs_and_outputs(ask):
    status, got = ask().get("/v2/models/m")
    assert status == 200
    kinds = [(tensor["name"], tensor["datatype"]) for tensor in got["inputs"]]
    assert kinds == [("area", "FP64"), ("zone", "BYTES"), ("sold", "BYTES"), ("price", "FP64")]
    assert ask().get("/v2")[1]["name"] == "treecdf"
    assert ask().get("/v2/models/other")[0] == ask().get("/v2/models/m/versions/2")[0] == 404


BAD_INFERENCE = {
    "no inputs": ({}, "inputs: expected a list of tensors; got null"),
    "an unknown input": ({"inputs": [{**INPUTS[0], "name": "volume"}, *INPUTS[1:]]}, "unknown column 'volume'"),
    "a missing input": ({"inputs": INPUTS[:2]}, "column 'sold' is not there"),
    "an input twice": ({"inputs": [INPUTS[0], INPUTS[0], INPUTS[1]]}, "input 'area' comes twice"),
    "a wrong shape": ({"inputs": [{**INPUTS[0], "shape": [3]}, *INPUTS[1:]]}, "the shape says 3 values"),
    "a matrix": ({"inputs": [{**INPUTS[0], "shape": [1, 2]}, *INPUTS[1:]]}, "expected the shape [n] or [n, 1]"),
    "a wrong type": ({"inputs": [{**INPUTS[0], "datatype": "COMPLEX"}, *INPUTS[1:]]}, "expected a datatype"),
    "binary data": ({"inputs": [{**INPUTS[0], "data": "AAA="}, *INPUTS[1:]]}, "expected data as a list"),
    "an unknown output": ({"inputs": INPUTS, "outputs": [{"name": "mode"}]}, "expected objects with one of the names"),
    "an output twice": ({"inputs": INPUTS, "outputs": [{"name": "mean"}] * 2}, "comes twice"),
    "no outcome": ({"inputs": INPUTS, "outputs": [{"name": "cdf"}]}, "expected inputs with the outcomes 'price'"),
    "few outcomes": ({"inputs": [*INPUTS, {**OUTCOME, "shape": [1], "data": [1]}]}, "expected 2 outcomes"),
    "a bad level": ({"inputs": INPUTS, "outputs": [{"name": "quantiles", "parameters": {"levels": "a"}}]}, "levels"),
    "a long id": ({"inputs": INPUTS, "id": "x" * 300}, "id: expected a text"),
}


@pytest.mark.parametrize("name", BAD_INFERENCE)
def test_bad_inference_is_refused(ask, name):
    body, sentence = BAD_INFERENCE[name]
    status, got = ask().post("/v2/models/m/infer", body)
    assert status == 400
    assert sentence in got["error"]


# Refusals

BAD = {
    "no JSON": (b"{rows", 400, "the body is no JSON"),
    "nothing": (b"", 400, "the body is no JSON"),
    "no UTF-8": (b'{"rows": "\xff\xfe"}', 400, "no UTF-8"),
    "a list": (b"[1]", 400, "expected an object; got a list"),
    "NaN": (b'{"rows": [{"area": NaN}]}', 400, "NaN is no JSON"),
    "Infinity": (b'{"rows": [{"area": -Infinity}]}', 400, "Infinity is no JSON"),
    "a name twice": (b'{"rows": [], "rows": []}', 400, "the name 'rows' comes twice"),
    "deep nesting": (b'{"rows":' + b"[" * 200_000, 400, "nested too deeply"),
    "deep nesting that ends": (b'{"rows":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deeply"),
    "thousands of digits": (b'{"rows": [{"area": ' + b"9" * 5000 + b"}]}", 400, "too many digits"),
    "a huge integer": (one() | {"rows": [{**ROWS[0], "area": 10**400}]}, 400, "beyond the range of float64"),
    "a huge float": (json.dumps(one()).replace("70", "1e999").encode(), 400, "row 0, column 'area': expected a finite"),
    "no rows": ({}, 400, "expected either rows"),
    "rows and columns": ({"rows": ROWS, "columns": COLUMNS}, 400, "expected either rows"),
    "empty rows": ({"rows": []}, 400, "expected at least one row"),
    "a row that is none": ({"rows": [3]}, 400, "row 0: expected an object of columns; got 3"),
    "an unknown field": (one(levle=0.5), 400, "unknown field 'levle'"),
    "an unknown column": ({"rows": [{**ROWS[0], "rooms": 3}]}, 400, "row 0: unknown column 'rooms'"),
    "a missing column": ({"rows": [{"area": 1}]}, 400, "row 0: column 'zone' is not there"),
    "text for a number": ({"rows": [{**ROWS[0], "area": "70"}]}, 400, "column 'area': expected a finite number"),
    "a list for a number": ({"rows": [{**ROWS[0], "area": [1]}]}, 400, "got a list"),
    "an object for a name": ({"rows": [{**ROWS[0], "zone": {}}]}, 400, "expected a text or null; got an object"),
    "no date": ({"rows": [{**ROWS[0], "sold": "yesterday"}]}, 400, "expected a date as text or null; got 'yesterday'"),
    "a number for a date": ({"rows": [{**ROWS[0], "sold": 20260131}]}, 400, "expected a date as text"),
    "dates and times": ({"rows": [ROWS[0], {**ROWS[0], "sold": "12:30"}]}, 400, "got both"),
    "columns of two lengths": ({"columns": {**COLUMNS, "zone": ["3"]}}, 400, "has 1 values and others have 2"),
    "a column that is none": ({"columns": {**COLUMNS, "zone": "hill"}}, 400, "column 'zone': expected a list"),
    "too many rows": ({"rows": ROWS[:1] * 1001}, 413, "expected at most 1000 rows; got 1001"),
    "too large a body": (b'{"rows": "' + b"a" * 4_000_000 + b'"}', 413, "at most 4000000 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bodies_are_refused_in_one_sentence(ask, name):
    body, status, sentence = BAD[name]
    got = ask().post("/intervals", body)
    assert got[0] == status
    assert sentence in got[1]["error"]
    assert "\n" not in got[1]["error"]
    assert len(got[1]["error"]) < 300


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("quantiles", {"levels": []}, 400),
        ("quantiles", {"levels": [0]}, 400),
        ("quantiles", {"levels": ["0.5"]}, 400),
        ("quantiles", {"levels": 0.5}, 400),
        ("quantiles", {"levels": [0.5] * 101}, 413),
        ("intervals", {"level": 1}, 400),
        ("intervals", {"level": True}, 400),
        ("intervals", {"level": None}, 400),
        ("samples", {"draws": 0}, 400),
        ("samples", {"draws": 2.0}, 400),
        ("samples", {"draws": 10**30}, 413),
        ("samples", {"seed": -1}, 400),
        ("samples", {"seed": 2**64}, 400),
        ("density", {}, 400),
        ("density", {"outcomes": [1, 2]}, 400),
        ("density", {"outcomes": [[]]}, 400),
        ("density", {"outcomes": [None]}, 400),
        ("density", {"outcomes": [[1, [2]]]}, 400),
        ("cdf", {"outcomes": ["1"]}, 400),
        ("cdf", {"outcomes": {"price": 1}}, 400),
        ("cdf", {"outcomes": [{"rent": 1}]}, 400),
    ],
)
def test_bad_fields_are_refused(ask, path, more, status):
    got = ask().post(f"/{path}", one(**more))
    assert got[0] == status, got
    assert list(more) == [] or next(iter(more)) in got[1]["error"]


def test_answers_have_a_size(ask):
    status, got = ask(Limits(values=50)).post("/samples", {"rows": ROWS, "draws": 26})
    assert (status, got["error"]) == (413, "the answer would hold 52 numbers, and at most 50 are allowed")


def test_long_texts_are_not_repeated_in_full(ask):
    status, got = ask().post("/mean", {"rows": [{**ROWS[0], "area": "\x1b" + "a" * 10_000}]})
    assert status == 400
    assert len(got["error"]) < 200
    assert "\\x1b" in got["error"]


def test_other_addresses_methods_and_types(ask):
    async def talk(client):
        return [
            await client.get("/nothing"),
            await client.get("/mean"),
            await client.post("/v2/health/live"),
            await client.post("/mean", content=json.dumps(one())),
            await client.post("/mean", data={"rows": "1"}),
        ]

    responses = ask().run(talk)
    assert [response.status_code for response in responses] == [404, 405, 405, 415, 415]
    assert all(set(response.json()) == {"error"} for response in responses)


def test_a_body_without_a_length_is_limited_too(ask):
    async def parts():
        for _ in range(100):
            yield b" " * 100_000

    async def talk(client):
        return await client.post("/mean", content=parts(), headers={"content-type": "application/json"})

    response = ask().run(talk)
    assert response.status_code == 413


def test_a_body_that_does_not_arrive_is_given_up(ask):
    client = ask(Limits(seconds=0.05))

    async def talk():
        """A server's conversation: httpx reads the whole body before it calls an application."""
        sent = []
        scope = {"type": "http", "method": "POST", "path": "/mean", "query_string": b"", "http_version": "1.1"}
        scope |= {"headers": [(b"content-type", b"application/json")], "scheme": "http", "server": ("s", 80)}

        async def receive():
            await asyncio.sleep(5)

        async def send(message):
            sent.append(message)

        await client.application.asgi(scope, receive, send)
        return sent

    sent = asyncio.run(talk())
    assert sent[0]["status"] == 408
    assert b"did not arrive" in sent[1]["body"]


# Under load and at the end


def test_health_is_told_while_answers_are_worked_out(ask, monkeypatch):
    go_on, begun = threading.Event(), threading.Event()

    def slow(served, table, given):
        begun.set()
        assert go_on.wait(30)
        return {}

    monkeypatch.setitem(questions.QUESTIONS, "mean", questions.Question(slow))
    client = ask(Limits(waiting=2))

    async def talk(http):
        post = {"content": json.dumps(one()), "headers": {"content-type": "application/json"}}
        slow = [asyncio.create_task(http.post("/mean", **post)) for _ in range(2)]
        await asyncio.to_thread(begun.wait, 30)
        live, ready = await http.get("/v2/health/live"), await http.get("/v2/models/m/ready")
        busy = await http.post("/intervals", **post)
        go_on.set()
        done = await asyncio.gather(*slow)
        after = await http.post("/intervals", **post)
        return [live, ready, busy, *done, after]

    responses = client.run(talk)
    assert [response.status_code for response in responses] == [200, 200, 503, 200, 200, 200]
    assert responses[2].headers["retry-after"] == "1"


def test_it_is_ready_when_every_question_was_tried(ask, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr("treecdf.serving.app.try_out", lambda served: go_on.wait(30))
    client = ask()

    async def talk(http):
        before = await http.get("/v2/health/ready")
        go_on.set()
        for _ in range(200):
            after = await http.get("/v2/health/ready")
            if after.status_code == 200:
                break
            await asyncio.sleep(0.05)
        client.application.is_stopping = True
        return before, after, await http.get("/v2/health/ready"), await http.get("/v2/health/live")

    before, after, stopping, live = client.run(talk)
    assert [r.status_code for r in (before, after, stopping, live)] == [503, 200, 503, 200]
    assert "connection" not in after.headers
    assert stopping.headers["connection"] == "close"


def test_a_failure_of_ours_tells_nothing_of_the_machine(ask, monkeypatch, caplog):
    def broken(served, table, given):
        raise OSError(2, "No such file", "/secret/place")

    monkeypatch.setitem(questions.QUESTIONS, "mean", questions.Question(broken))
    status, got = ask().post("/mean", one())
    assert status == 500
    assert "/" not in got["error"]
    assert "Traceback" not in got["error"]
    assert "/secret/place" in caplog.text  # the log has it


def test_every_question_can_be_tried(model, two_outcomes, monkeypatch):
    asked = []
    for name, question in questions.QUESTIONS.items():

        def answer(served, table, given, name=name, question=question):
            asked.append(name)
            return question.answer(served, table, given)

        monkeypatch.setitem(questions.QUESTIONS, name, questions.Question(answer, question.fields))
    for each in (model, two_outcomes):
        questions.try_out(Served(each, "m", Limits()))
    assert asked == [*questions.QUESTIONS] * 2


def test_the_model_that_was_given_is_left_as_it_was(ask, model):
    ask().post("/mean", one())
    assert model.n_jobs == 2
