"""Models that the tests of the server ask, and a client that needs no network."""

import asyncio
import json

import httpx
import numpy as np
import pandas as pd
import pytest

from tests.helpers.small_tables import small_model
from treecdf import TreeFlowRegressor
from treecdf.serving.app import Application

DAYS = np.datetime64("2026-01-01") + np.arange(120)


@pytest.fixture(scope="session")
def model():
    """A model of one outcome with a number that has gaps, a category and a date."""
    rng = np.random.default_rng(0)
    n = len(DAYS)
    x = pd.DataFrame({"area": rng.gamma(9, 8, n), "zone": rng.choice(["hill", "01", "3"], n), "sold": DAYS})
    x.loc[::9, "area"] = np.nan
    y = pd.Series(10 * (x.zone == "hill") + rng.normal(size=n), name="price")
    return TreeFlowRegressor(effort="fast", max_trees=5, random_state=0, n_jobs=2).fit(x, y)


@pytest.fixture(scope="session")
def two_outcomes():
    """A model of two outcomes."""
    return small_model(("rent", "deposit"))


class Client:
    """Asks an application without a network; answers are pairs of a status and an object."""

    def __init__(self, model, limits=None):
        self.application = Application(model, "m", limits, n_threads=2)
        self.headers = {}

    def run(self, talk):
        """What a coroutine of a client gives, between the start and the end of the application."""

        async def session():
            asgi = self.application.asgi
            async with asgi.router.lifespan_context(asgi):
                transport = httpx.ASGITransport(asgi, raise_app_exceptions=False)
                async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
                    return await talk(client)

        return asyncio.run(session())

    def get(self, path):
        return self.run(lambda client: self.answered(client.get(path)))

    def post(self, path, body):
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        headers = {"content-type": "application/json"}
        return self.run(lambda client: self.answered(client.post(path, content=content, headers=headers)))

    async def answered(self, request):
        response = await request
        self.headers = response.headers
        return response.status_code, json.loads(response.content)


@pytest.fixture(autouse=True)
def _untried(monkeypatch):
    """Spare every test that the model is tried out first."""
    monkeypatch.setattr("treecdf.serving.app.try_out", lambda served: None)


@pytest.fixture
def ask(model):
    """A function that makes clients of the model."""
    return lambda limits=None: Client(model, limits)
