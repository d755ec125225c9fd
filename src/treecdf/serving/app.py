"""The routes of a server, as an ASGI application: bodies are read with limits, answers are computed in threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from joblib import cpu_count
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import treecdf
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.serving.bodies import encode
from treecdf.serving.inference import VERSION, describe_model, infer
from treecdf.serving.limits import Limits, Refusal
from treecdf.serving.questions import QUESTIONS, answer_question, describe, try_out
from treecdf.serving.served import Served

_LOG = logging.getLogger("treecdf.serving")
_FAILED = "the server failed on this request, not by a fault of the request; the server's log has the reason"
# Sentences for the statuses that the routing itself gives.
_STATUSES = {404: "there is nothing at this address", 405: "this address does not take this method"}


class Application:
    """A model behind HTTP. `asgi` is the ASGI application; `is_stopping` makes it prepare for the end.

    While it is stopping it answers as before, reports that it is not ready, and closes connections after their answers,
    so that clients send their next request elsewhere.
    """

    def __init__(
        self, model: TreeFlowRegressor, name: str, limits: Limits | None = None, n_threads: int | None = None
    ) -> None:
        self._served = Served(model, name, limits or Limits())
        self._threads = ThreadPoolExecutor(n_threads or cpu_count(), thread_name_prefix="treecdf-answers")
        self._n_inside = 0
        self._is_tried = False
        self.is_stopping = False
        self.asgi = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._of_routing, 500: self._of_failure},
        )

    def _routes(self) -> list[Route]:
        served = self._served
        model = "/v2/models/{name}"
        version = f"{model}/versions/{{version}}"
        routes = [
            Route("/", self._tells(lambda: describe(served, treecdf.__version__))),
            Route("/v2", self._tells(lambda: _describe_server())),
            Route("/v2/health/live", self._tells(lambda: {"live": True})),
            Route("/v2/health/ready", self._ready),
        ]
        for own in (model, version):
            routes += [
                Route(own, self._tells(lambda: describe_model(served))),
                Route(f"{own}/ready", self._ready),
                Route(f"{own}/infer", self._answers(infer), methods=["POST"]),
            ]
        for name, question in QUESTIONS.items():

            def answer(served: Served, body: bytes, question: Any = question) -> dict[str, Any]:
                return answer_question(served, question, body)

            routes.append(Route(f"/{name}", self._answers(answer), methods=["POST"]))
        return routes

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Try the model at the start, beside the first requests; finish the last answers at the end."""
        trying = asyncio.get_running_loop().run_in_executor(self._threads, self._try_out)
        yield
        await trying
        self._threads.shutdown(wait=True)

    def _try_out(self) -> None:
        try:
            try_out(self._served)
            self._is_tried = True
        except Exception:
            _LOG.exception("the model cannot answer: the server will not be ready")

    # Handlers

    def _tells(self, tell: Callable[[], dict[str, Any]]) -> Callable[[Request], Any]:
        """A handler that returns what is known without computation."""

        async def handle(request: Request) -> Response:
            try:
                self._check_name(request)
            except Refusal as refusal:
                return self._refusal(refusal)
            return self._response(encode(tell()))

        return handle

    async def _ready(self, request: Request) -> Response:
        """The response that says whether the server is ready for requests."""
        try:
            self._check_name(request)
        except Refusal as refusal:
            return self._refusal(refusal)
        is_ready = self._is_tried and not self.is_stopping
        return self._response(encode({"ready": is_ready}), 200 if is_ready else 503)

    def _answers(self, answer: Callable[[Served, bytes], dict[str, Any]]) -> Callable[[Request], Any]:
        """A handler that reads a body and computes an answer in a thread."""

        def work(body: bytes) -> str:
            return encode(answer(self._served, body))

        async def handle(request: Request) -> Response:
            try:
                with self._admitted():
                    self._check_name(request)
                    body = await self._body(request)
                    text = await asyncio.get_running_loop().run_in_executor(self._threads, work, body)
            except Refusal as refusal:
                return self._refusal(refusal)
            except ClientDisconnect:
                return self._refusal(Refusal("the client went away"))
            except MemoryError:
                return self._refusal(Refusal("there is not enough memory for this request", 503))
            except Exception:
                _LOG.exception("a request failed")
                return self._refusal(Refusal(_FAILED, 500))
            return self._response(text)

        return handle

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count a request while it is processed; refuse it if there are too many."""
        if self._n_inside >= self._served.limits.waiting:
            raise Refusal("the server is busy: try again later", 503)
        self._n_inside += 1
        try:
            yield
        finally:
            self._n_inside -= 1

    def _check_name(self, request: Request) -> None:
        """Refuse requests for another model."""
        name, version = request.path_params.get("name"), request.path_params.get("version")
        if name not in (None, self._served.name) or version not in (None, VERSION):
            raise Refusal("there is no such model here; GET / names it", 404)

    async def _body(self, request: Request) -> bytes:
        """The body of a request, declared as JSON and within the limits."""
        limits = self._served.limits
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        # Browsers send other types to any address without asking first: this keeps foreign pages out.
        if kind != "application/json":
            raise Refusal("expected the header Content-Type: application/json", 415)
        too_large = Refusal(f"expected a body of at most {limits.body} bytes", 413)
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 18 or int(length) > limits.body):
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > limits.body:
                        raise too_large
        except TimeoutError:
            raise Refusal(f"the body did not arrive within {limits.seconds:g} seconds", 408) from None
        return bytes(body)

    # Responses

    def _response(self, text: str, status: int = 200) -> Response:
        headers = {"connection": "close"} if self.is_stopping else {}
        if status == 503:
            headers["retry-after"] = "1"
        return Response(text, status, headers, media_type="application/json")

    def _refusal(self, refusal: Refusal) -> Response:
        return self._response(encode({"error": refusal.sentence}), refusal.status)

    async def _of_routing(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        return self._refusal(Refusal(_STATUSES.get(status, "the request cannot be answered"), status))

    async def _of_failure(self, request: Request, error: Exception) -> Response:
        return self._refusal(Refusal(_FAILED, 500))


def _describe_server() -> dict[str, Any]:
    """The server's metadata in the Open Inference Protocol."""
    return {"name": "treecdf", "version": treecdf.__version__, "extensions": []}
