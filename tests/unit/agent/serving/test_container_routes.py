"""A command of `/run` ends when its client has left, and otherwise gives its result."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from nodewright.agent.host.ports import ExecResult
from nodewright.agent.serving.container_routes import _unless_disconnected
from nodewright.model.errors import HostError

DONE = ExecResult(0, b"done")


def a_request(*messages: str) -> Request:
    """A request whose client sends these messages, and then nothing."""
    pending: Iterator[str] = iter(messages)

    async def receive() -> dict[str, Any]:
        kind = next(pending, "")
        if not kind:
            await asyncio.Event().wait()
        return {"type": kind, "body": b"", "more_body": False}

    scope = {"type": "http", "path_params": {"container": "main"}, "headers": []}
    return Request(scope, receive)


def test_a_command_is_cancelled_when_its_client_leaves() -> None:
    async def run() -> None:
        cancelled = asyncio.Event()

        async def operation() -> ExecResult:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return DONE

        with pytest.raises(HostError, match="the client has left"):
            await _unless_disconnected(a_request("http.request", "http.disconnect"), operation())
        assert cancelled.is_set()

    asyncio.run(run())


def test_a_command_whose_client_waits_gives_its_result_or_error() -> None:
    async def succeed() -> ExecResult:
        await asyncio.sleep(0)
        return DONE

    async def fail() -> ExecResult:
        raise TimeoutError

    assert asyncio.run(_unless_disconnected(a_request("http.request"), succeed())) == DONE
    with pytest.raises(TimeoutError):
        asyncio.run(_unless_disconnected(a_request("http.request"), fail()))
