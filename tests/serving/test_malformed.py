"""Hundreds of requests that nobody should send: each gets an answer, and none is our failure."""

import json
import random

import pytest

from benchmarks.malformed import malformed
from tests.serving.test_app import COLUMNS, INPUTS, OUTCOME, ROWS

pytestmark = pytest.mark.filterwarnings("ignore:Column .* such as training rows did not have:UserWarning")
GOOD = {
    "/mean": {"rows": ROWS},
    "/intervals": {"columns": COLUMNS, "level": 0.8},
    "/quantiles": {"rows": ROWS, "levels": [0.1, 0.9]},
    "/density": {"rows": ROWS, "outcomes": [1, 2]},
    "/cdf": {"rows": ROWS, "outcomes": [[1, 2], [3, 4]]},
    "/samples": {"rows": ROWS, "draws": 2, "seed": 1},
    "/v2/models/m/infer": {"inputs": [*INPUTS, OUTCOME], "outputs": [{"name": "cdf", "parameters": {}}]},
}
N_REQUESTS = 400


def test_malformed_requests_are_refused_or_answered(ask):
    rng = random.Random(0)
    requests = [malformed(GOOD, rng) for _ in range(N_REQUESTS)]

    async def talk(client):
        headers = {"content-type": "application/json"}
        return [await client.post(path, content=body, headers=headers) for path, body in requests]

    responses = ask().run(talk)
    for request, response in zip(requests, responses, strict=True):
        answer = json.loads(response.content, parse_constant=pytest.fail)
        if response.status_code == 200:
            continue
        assert response.status_code in (400, 413), (request, answer)
        assert set(answer) == {"error"}
        assert "\n" not in answer["error"]
        assert not any(word in answer["error"] for word in ("Traceback", ".py", "/usr", "numpy")), answer
    refused = sum(response.status_code != 200 for response in responses)
    assert N_REQUESTS / 2 < refused < N_REQUESTS


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 10**308])
def test_the_largest_and_smallest_numbers_are_numbers(ask, value):
    body = {"rows": [{**ROWS[0], "area": value}], "outcomes": [value]}
    for path in ("/density", "/cdf"):
        assert ask().post(path, body)[0] == 200
    for path in ("/mean", "/quantiles", "/samples"):
        assert ask().post(path, {"rows": body["rows"]})[0] == 200
