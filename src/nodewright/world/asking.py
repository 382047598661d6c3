"""Asks containers what probes and hooks ask: by a command in them, HTTP, TCP, gRPC, or by waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nodewright.values.duration import Duration
from nodewright.values.golang import quoted
from nodewright.world.errors import WorldError
from nodewright.world.grpc_health import ask_health
from nodewright.world.http_get import HTTPAnswer, HTTPFailure, Request, dial_error, http_get, joined
from nodewright.world.ports import Caution, Clock, ContainerRuntime, Executed

_MOST_OUTPUT = 10 * 1024
_TRIES = 3
_HTTP_OF_HTTPS = "server gave HTTP response to HTTPS client"


class HostAsker:
    """Asks through a runtime and the machine's network; ``host`` stands for pods without an address of their own."""

    def __init__(self, runtime: ContainerRuntime, clock: Clock, host: str = "127.0.0.1") -> None:
        self._runtime, self._clock, self._host = runtime, clock, host

    async def ask(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        """Whether a probe's answer is good, and what was said, in the kubelet's words.

        Follows: v1.36, pkg/kubelet/prober/prober.go, runProbe; pkg/probe.
        Errors:  WorldError where it could not be asked at all.
        """
        host = address or self._host
        if handler.get("exec") is not None:
            command = tuple(handler["exec"].get("command") or ())
            return await self._tried(lambda: self._probed(command, container_id, timeout_s))
        if handler.get("httpGet") is not None:
            request = Request.of(handler["httpGet"], host, "probe")
            return await self._tried(lambda: _http_probed(request, timeout_s))
        if handler.get("tcpSocket") is not None:
            told = handler["tcpSocket"]
            return await _connected(told.get("host") or host, told["port"], timeout_s)
        if handler.get("grpc") is not None:
            told = handler["grpc"]
            return await ask_health(host, told["port"], told.get("service") or "", timeout_s)
        raise WorldError("probe", container_id, "missing probe handler")

    async def hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, who: str
    ) -> tuple[bool, str]:
        """Whether a hook has run, and what the kubelet says if it has not; ``who`` is the container in its words.

        Follows: v1.36, pkg/kubelet/lifecycle/handlers.go, Run.
        """
        if handler.get("exec") is not None:
            return await self._hooked(handler["exec"], container_id, timeout_s, who)
        if handler.get("httpGet") is not None:
            told = handler["httpGet"]
            error = await _http_hooked(Request.of(told, address or self._host, "lifecycle"), timeout_s)
            what = f"HTTP lifecycle hook ({told.get('path') or ''}) for {who} failed - error: {error}"
            return (not error), (what if error else "")
        if handler.get("sleep") is not None:
            await self._clock.sleep(min(float(handler["sleep"].get("seconds") or 0), timeout_s))
            return True, ""
        return False, f"Cannot run handler: invalid handler: {dict(handler)}"

    async def _probed(
        self, command: tuple[str, ...], container_id: str, timeout_s: float
    ) -> tuple[bool, str]:
        try:
            done = await self._runtime.execute(container_id, command, timeout_s)
        except TimeoutError:
            return False, _timed_out(command, timeout_s)
        return done.exit_code == 0, _output(done)[:_MOST_OUTPUT].decode(errors="replace")

    async def _hooked(
        self, told: Mapping[str, Any], container_id: str, timeout_s: float, who: str
    ) -> tuple[bool, str]:
        command = tuple(told.get("command") or ())
        output = b""
        try:
            done = await self._runtime.execute(container_id, command, timeout_s)
        except TimeoutError:
            error = _timed_out(command, timeout_s)
        except WorldError as failure:
            error = str(failure)
        else:
            output = _output(done)
            said = done.stderr.decode(errors="replace")
            error = (
                f"command '{' '.join(command)}' exited with {done.exit_code}: {said}"
                if done.exit_code
                else ""
            )
        if not error:
            return True, ""
        message = quoted(output.decode(errors="replace"))
        shown = f"[{' '.join(command)}]"
        return False, f"Exec lifecycle hook ({shown}) for {who} failed - error: {error}, message: {message}"

    async def _tried(self, asking: Callable[[], Awaitable[tuple[bool, str]]]) -> tuple[bool, str]:
        """What could not be asked is asked again, a few times."""
        for _ in range(_TRIES - 1):
            try:
                return await asking()
            except WorldError:
                continue
        return await asking()


def _output(done: Executed) -> bytes:
    return done.stdout + done.stderr


def _timed_out(command: tuple[str, ...], timeout_s: float) -> str:
    after = Duration(round(timeout_s * 10**9))
    return f"command timed out: {quoted(' '.join(command))} timed out after {after}"


async def _http_probed(request: Request, timeout_s: float) -> tuple[bool, str]:
    """Whether a GET succeeds.

    Follows: v1.36, pkg/probe/http/http.go, DoHTTPProbe.
    """
    found = await http_get(request, timeout_s)
    if isinstance(found, HTTPFailure):
        if found.is_in_body:
            raise WorldError("read", request.url, found.error)
        return False, found.text(request)
    body = found.body.decode(errors="replace")
    if found.status in range(200, 300):
        return True, body
    if found.status in range(300, 400):
        return True, Caution(f"Probe terminated redirects, Response body: {body}")
    return False, f"HTTP probe failed with statuscode: {found.status}"


async def _http_hooked(request: Request, timeout_s: float) -> str:
    """Why a GET could not be made; whatever it is answered with is good.

    Follows: v1.36, pkg/kubelet/lifecycle/handlers.go, runHTTPHandler.
    """
    found: HTTPAnswer | HTTPFailure = await http_get(request, timeout_s)
    if isinstance(found, HTTPFailure) and _HTTP_OF_HTTPS in found.error:
        plainly = await http_get(request.unencrypted(), timeout_s)
        found = found if isinstance(plainly, HTTPFailure) else plainly
    return found.text(request) if isinstance(found, HTTPFailure) and not found.is_in_body else ""


async def _connected(host: str, port: int, timeout_s: float) -> tuple[bool, str]:
    """Whether somebody listens.

    Follows: v1.36, pkg/probe/tcp/tcp.go, DoTCPProbe.
    """
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return False, f"dial tcp {joined(host, port)}: i/o timeout"
    except OSError as error:
        return False, dial_error(host, port, error)
    writer.close()
    return True, ""
