"""What the network sees of a SuperLink: the nodes' own calls, and nothing else.

Flower 1.42 serves three interfaces on the SuperLink's one port: that of the nodes, which
``--enable-supernode-auth`` guards with their registered keys; that of the operator, who starts runs
and registers keys; and that of the apps at work. The last two ask nobody who they are: whoever
reaches the port may let a node of his own in, or start a run, whose code every node executes. So
the SuperLink listens on loopback, and this gate stands in front of it: it ends TLS, passes on
``POST /v1/fleet/<call>`` and ``GET /health``, and answers 404 to everything else.
"""

import logging
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedunlearn.errors import InputError

MAX_BODY = 64 * 2**20  # bytes; Flower cuts what is larger into chunks of 5 MB
_CALL = re.compile(r"[a-z]+(-[a-z]+)*")
_HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host", "content-length"),
}

logger = logging.getLogger(__name__)


def make_gate(superlink: httpx.AsyncClient, *, max_body: int = MAX_BODY) -> Starlette:
    """Build the gate's app.

    Args:
        superlink: a client whose ``base_url`` is the SuperLink's; it is closed with the app.
        max_body: bytes of the largest request passed on.
    """

    async def fleet(request: Request) -> Response:
        call = request.path_params["call"]
        if not _CALL.fullmatch(call):
            return Response(status_code=404)
        body = await _body(request, max_body)
        if body is None:
            return Response(f"the gate passes on {max_body} bytes at most", status_code=413)
        return await _pass_on(superlink, request, f"/v1/fleet/{call}", body)

    async def health(request: Request) -> Response:
        return await _pass_on(superlink, request, "/health", b"")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with superlink:
            yield

    routes = [
        Route("/v1/fleet/{call}", fleet, methods=["POST"]),
        Route("/health", health, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    return app


async def _body(request: Request, limit: int) -> bytes | None:
    """Read a request's body, or as much of it as shows that it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


async def _pass_on(
    superlink: httpx.AsyncClient, request: Request, path: str, body: bytes
) -> Response:
    try:
        answer = await superlink.request(
            request.method, path, content=body, headers=_end_to_end(request.headers.items())
        )
    except httpx.HTTPError as fault:
        logger.warning("the SuperLink does not answer: %s", fault)
        return Response("the SuperLink does not answer", status_code=502)
    made = Response(answer.content, status_code=answer.status_code)
    for name, value in _end_to_end(answer.headers.multi_items()):
        if name.lower() not in ("content-encoding", "date", "server"):  # httpx has decoded it
            made.headers[name] = value
    return made


def _end_to_end(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


def run_gate(
    *,
    listen: tuple[str, int],
    superlink: tuple[str, int],
    certificate: Path,
    key: Path,
    root_certificates: Path,
) -> None:
    """Serve until the process is told to end.

    Args:
        listen: address and port that nodes connect to.
        superlink: address and port of the SuperLink.
        certificate: the server's, PEM.
        key: its private key, PEM.
        root_certificates: of the authority that signed the SuperLink's certificate, PEM.

    Raises:
        InputError: a file cannot be read or is not what it should be.
    """
    try:
        trusted = ssl.create_default_context(cafile=root_certificates)
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as fault:
        files = ", ".join(map(str, (certificate, key, root_certificates)))
        raise InputError(f"one of {files} cannot be used: {fault}") from None
    host = f"[{superlink[0]}]" if ":" in superlink[0] else superlink[0]
    client = httpx.AsyncClient(
        base_url=f"https://{host}:{superlink[1]}", verify=trusted, timeout=300.0, trust_env=False
    )
    uvicorn.run(
        make_gate(client),
        host=listen[0],
        port=listen[1],
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        server_header=False,
    )
