"""The gate passes on the nodes' calls, whole and unchanged, and nothing else."""

import asyncio
import re
import subprocess
import sys
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedunlearn.deployment.gate import make_gate


async def echo(request: Request) -> Response:
    """Says what it was asked; stands for a SuperLink that answers anything."""
    body = await request.body()
    return Response(
        body[::-1],
        status_code=418 if request.url.path.endswith("teapot") else 200,
        headers={
            "X-Path": request.url.path,
            "X-Signature": request.headers.get("x-signature", ""),
            "Content-Type": "application/protobuf",
        },
    )


def gate(*, max_body: int = 1000) -> Starlette:
    everything = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST", "PUT"])])
    superlink = httpx.AsyncClient(
        transport=httpx.ASGITransport(everything), base_url="https://superlink"
    )
    return make_gate(superlink, max_body=max_body)


def ask(
    app: Starlette, method: str, path: str, body: bytes = b"", **headers: str
) -> httpx.Response:
    """Put a request to the app as a server does, with a path that no client has tidied up."""
    said: list[MutableMapping[str, Any]] = []
    heard = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return heard.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    names = {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in names.items()],
    }
    asyncio.run(app(scope, receive, send))
    content = b"".join(one.get("body", b"") for one in said[1:])
    return httpx.Response(said[0]["status"], headers=said[0]["headers"], content=content)


def test_a_nodes_call_arrives_as_it_was_sent_and_so_does_its_answer() -> None:
    answer = ask(gate(), "POST", "/v1/fleet/pull-messages", b"\x00\x01\xff", x_signature="s")
    assert answer.content == b"\xff\x01\x00"
    assert answer.headers["X-Path"] == "/v1/fleet/pull-messages"
    assert answer.headers["X-Signature"] == "s"
    assert answer.headers["Content-Type"] == "application/protobuf"
    assert ask(gate(), "POST", "/v1/fleet/teapot").status_code == 418
    assert ask(gate(), "GET", "/health").headers["X-Path"] == "/health"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/docs", "/openapi.json", "/v1/control/list-runs", "/v1/runtime/acquire-task"),
        *("/v1/fleet/", "/v1/fleet/a/b", "/v1/fleet/A", "/v1/fleet/..", "/v1/fleet/a.b"),
        *("/v1/fleet/../control/list-runs", "/v1/fleet/..%2fcontrol%2flist-runs", "//v1/fleet/a"),
        *("/V1/fleet/a", "/v1/fleet/a%0d%0aX-Path:b", "/v1/fleet/a%3fb", "/v1/fleet/-a"),
    ],
)
def test_nothing_else_is_there(path: str) -> None:
    assert ask(gate(), "POST", path).status_code == 404
    assert ask(gate(), "GET", path).status_code in (404, 405)


def test_a_call_is_posted_and_not_got_or_put() -> None:
    assert ask(gate(), "GET", "/v1/fleet/pull-messages").status_code == 405
    assert ask(gate(), "PUT", "/v1/fleet/pull-messages").status_code == 405
    assert ask(gate(), "POST", "/health").status_code == 405


@given(st.text("abz-/.%2fAZ0 ?", min_size=1, max_size=12))
def test_whatever_comes_through_is_a_nodes_call(tail: str) -> None:
    answer = ask(gate(), "POST", "/v1/fleet/" + tail)
    assert (answer.status_code == 200) == (re.fullmatch("[a-z]+(-[a-z]+)*", tail) is not None)
    if answer.status_code == 200:
        assert answer.headers["X-Path"] == "/v1/fleet/" + tail


def test_what_is_too_large_is_refused_before_it_is_passed_on() -> None:
    for size, status in ((1000, 200), (1001, 413)):
        answer = ask(gate(max_body=1000), "POST", "/v1/fleet/push-object", b"x" * size)
        assert answer.status_code == status


def test_a_superlink_that_is_down_is_said_to_be() -> None:
    def down(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    superlink = httpx.AsyncClient(transport=httpx.MockTransport(down), base_url="https://s")
    answer = ask(make_gate(superlink), "POST", "/v1/fleet/pull-messages")
    assert answer.status_code == 502
    assert answer.text == "the SuperLink does not answer"


def test_the_gate_starts_without_the_libraries_of_training() -> None:
    code = (
        "import sys, fedunlearn.cli_deploy, fedunlearn.deploy_commands;"
        "print({'torch', 'transformers', 'ray', 'flwr'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
