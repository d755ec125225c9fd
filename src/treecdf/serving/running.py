"""A server from its start to its end: it listens, and stops without losing requests."""

from __future__ import annotations

import asyncio
import socket
import sys
import warnings
from types import FrameType

import uvicorn
from threadpoolctl import threadpool_limits

from treecdf.serving.app import Application


class Server(uvicorn.Server):
    """uvicorn's server with an announced end.

    At the first signal it goes on for `notice` seconds, in which it reports that it is not ready and closes connections
    after their answers; then it accepts no new connections and finishes the requests it has accepted. At the second
    signal it ends at once.
    """

    def __init__(self, config: uvicorn.Config, application: Application, notice: float) -> None:
        super().__init__(config)
        self._application, self._notice = application, notice
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at the second signal end."""
        if self._application.is_stopping:
            self.should_exit = self.force_exit = True
            return
        self._application.is_stopping = True
        if self._loop is None:  # it has not begun
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, self._notice, self._end)

    def _end(self) -> None:
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= 65535:
        raise ValueError(f"cannot listen at {host}, port {port}: expected a port from 0 to 65535")
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None
    # asyncio does this for sockets that it makes. Without it the body of an answer waits 40 ms for the client's word
    # that it has the head; connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(application: Application, listening: socket.socket, notice: float = 1.0, patience: int = 60) -> None:
    """Serve until a signal comes.

    Parameters
    ----------
    application : Application
        What answers.
    listening : socket
        Where requests come from.
    notice : float, default 1.0
        Seconds between a signal and the end of listening.
    patience : int, default 60
        Seconds that requests may take after that.
    """
    host, port = listening.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    # Requests run side by side: more threads for the linear algebra of each would be in each other's way.
    threadpool_limits(1, user_api="blas")
    warnings.simplefilter("ignore", UserWarning)  # what they say is in the notes of the answers
    config = uvicorn.Config(
        application.asgi,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=patience,
    )
    sys.stderr.write(f"listening at http://{address}:{port} (Ctrl-C stops)\n")
    sys.stderr.flush()
    Server(config, application, notice).run([listening])
