"""Runs probes and lifecycle hooks: exec, HTTP, TCP, gRPC (`grpc.health.v1`) and sleep."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nodewright.agent.host.ports import ContainerRuntime, ExecResult, ProbeWarning
from nodewright.cluster.client.http_get import (
    HTTPFailure,
    HTTPRequest,
    HTTPResponse,
    dial_error,
    http_get,
    join_host_port,
)
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.errors import HostError
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import quoted

_CHECK = "/grpc.health.v1.Health/Check"
_SERVING_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_USER_AGENT = f"kube-probe/{NEWEST.name}"


async def check_health(host: str, port: int, service: str, timeout_s: float) -> tuple[bool, str]:
    """Checks the health of a gRPC service; returns success and output.

    Follows: v1.36, pkg/probe/grpc/grpc.go, Probe.
    Errors:  HostError if the Python package grpcio is not installed.
    """
    try:
        grpc: Any = importlib.import_module("grpc")
        aio: Any = importlib.import_module("grpc.aio")
    except ImportError:
        raise HostError(
            "ask by gRPC", join_host_port(host, port), "the Python package grpcio is not installed"
        ) from None
    address, limit = join_host_port(host, port), Duration(round(timeout_s * 10**9))
    options = [("grpc.primary_user_agent", _USER_AGENT), ("grpc.enable_http_proxy", 0)]
    async with aio.insecure_channel(address, options=options) as channel:
        check = channel.unary_unary(_CHECK)
        try:
            response = await check(_health_check_request(service), timeout=timeout_s, wait_for_ready=True)
        except aio.AioRpcError as error:
            return False, _rpc_failure_text(error, grpc, (address, limit, channel))
    status = _serving_status(response)
    if status == "SERVING":
        return True, "service healthy"
    return False, f"service unhealthy (responded with {quoted(status)})"


def _rpc_failure_text(error: Any, grpc: Any, call: tuple[str, Duration, Any]) -> str:
    address, limit, channel = call
    code, details = error.code(), error.details()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return (
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
            f"{details}"
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        if channel.get_state() is not grpc.ChannelConnectivity.READY:
            return f'timeout: failed to connect service "{address}" within {limit}: context deadline exceeded'
        return f"timeout: health rpc did not complete within {limit}"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    return f"error: health rpc probe failed: rpc error: code = {name} desc = {details}"


def _health_check_request(service: str) -> bytes:
    """A HealthCheckRequest: the service's name in field 1."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _varint(number: int) -> bytes:
    leading = b""
    while number > 0x7F:
        leading, number = leading + bytes([number & 0x7F | 0x80]), number >> 7
    return leading + bytes([number])


def _serving_status(response: bytes) -> str:
    """The status in a HealthCheckResponse: a number in field 1."""
    number = response[1] if len(response) > 1 and response[0] == 0x08 else 0
    return _SERVING_STATUSES[number] if number < len(_SERVING_STATUSES) else str(number)


_MAX_OUTPUT_BYTES = 10 * 1024
_MAX_ATTEMPTS = 3
_HTTP_RESPONSE_TO_HTTPS = "server gave HTTP response to HTTPS client"


class HostProber:
    """Probes through the runtime and the machine's network; ``host`` is the address of pods without their own."""

    def __init__(self, runtime: ContainerRuntime, clock: Clock, host: str = "127.0.0.1") -> None:
        self._runtime, self._clock, self._host = runtime, clock, host

    async def probe(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        """Runs a probe; returns success and the kubelet's output.

        Follows: v1.36, pkg/kubelet/prober/prober.go, runProbe; pkg/probe.
        Errors:  HostError if the probe could not be run.
        """
        host = address or self._host
        if handler.get("exec") is not None:
            command = tuple(handler["exec"].get("command") or ())
            return await self._with_retries(lambda: self._probe_exec(command, container_id, timeout_s))
        if handler.get("httpGet") is not None:
            request = HTTPRequest.from_http_get_action(handler["httpGet"], host, "probe")
            return await self._with_retries(lambda: _probe_http(request, timeout_s))
        if handler.get("tcpSocket") is not None:
            action = handler["tcpSocket"]
            return await _probe_tcp(action.get("host") or host, action["port"], timeout_s)
        if handler.get("grpc") is not None:
            action = handler["grpc"]
            return await check_health(host, action["port"], action.get("service") or "", timeout_s)
        raise HostError("probe", container_id, "missing probe handler")

    async def run_hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, container: str
    ) -> tuple[bool, str]:
        """Runs a hook; returns success, and the kubelet's message after a failure, which names ``container``.

        Follows: v1.36, pkg/kubelet/lifecycle/handlers.go, Run.
        """
        if handler.get("exec") is not None:
            return await self._run_exec_hook(handler["exec"], container_id, timeout_s, container)
        if handler.get("httpGet") is not None:
            action = handler["httpGet"]
            request = HTTPRequest.from_http_get_action(action, address or self._host, "lifecycle")
            error = await _run_http_hook(request, timeout_s)
            message = (
                f"HTTP lifecycle hook ({action.get('path') or ''}) for {container} failed - error: {error}"
            )
            return (not error), (message if error else "")
        if handler.get("sleep") is not None:
            await self._clock.sleep(min(float(handler["sleep"].get("seconds") or 0), timeout_s))
            return True, ""
        return False, f"Cannot run handler: invalid handler: {dict(handler)}"

    async def _probe_exec(
        self, command: tuple[str, ...], container_id: str, timeout_s: float
    ) -> tuple[bool, str]:
        try:
            result = await self._runtime.execute(container_id, command, timeout_s)
        except TimeoutError:
            return False, _timed_out(command, timeout_s)
        return result.exit_code == 0, _output(result)[:_MAX_OUTPUT_BYTES].decode(errors="replace")

    async def _run_exec_hook(
        self, action: Mapping[str, Any], container_id: str, timeout_s: float, container: str
    ) -> tuple[bool, str]:
        command = tuple(action.get("command") or ())
        output = b""
        try:
            result = await self._runtime.execute(container_id, command, timeout_s)
        except TimeoutError:
            error = _timed_out(command, timeout_s)
        except HostError as failure:
            error = str(failure)
        else:
            output = _output(result)
            stderr = result.stderr.decode(errors="replace")
            error = (
                f"command '{' '.join(command)}' exited with {result.exit_code}: {stderr}"
                if result.exit_code
                else ""
            )
        if not error:
            return True, ""
        message = quoted(output.decode(errors="replace"))
        command_text = f"[{' '.join(command)}]"
        return (
            False,
            f"Exec lifecycle hook ({command_text}) for {container} failed - error: {error}, message: {message}",
        )

    async def _with_retries(self, attempt: Callable[[], Awaitable[tuple[bool, str]]]) -> tuple[bool, str]:
        """The result of the probe, which is repeated if it could not be run."""
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return await attempt()
            except HostError:
                continue
        return await attempt()


def _output(result: ExecResult) -> bytes:
    return result.stdout + result.stderr


def _timed_out(command: tuple[str, ...], timeout_s: float) -> str:
    limit = Duration(round(timeout_s * 10**9))
    return f"command timed out: {quoted(' '.join(command))} timed out after {limit}"


async def _probe_http(request: HTTPRequest, timeout_s: float) -> tuple[bool, str]:
    """Probes by a GET request; returns success and output.

    Follows: v1.36, pkg/probe/http/http.go, DoHTTPProbe.
    """
    response = await http_get(request, timeout_s)
    if isinstance(response, HTTPFailure):
        if response.is_in_body:
            raise HostError("read", request.url, response.error)
        return False, response.text(request)
    body = response.body.decode(errors="replace")
    if response.status in range(200, 300):
        return True, body
    if response.status in range(300, 400):
        return True, ProbeWarning(f"Probe terminated redirects, Response body: {body}")
    return False, f"HTTP probe failed with statuscode: {response.status}"


async def _run_http_hook(request: HTTPRequest, timeout_s: float) -> str:
    """Runs a hook by a GET request; the error if there is no response. Every response counts as success.

    Follows: v1.36, pkg/kubelet/lifecycle/handlers.go, runHTTPHandler.
    """
    response: HTTPResponse | HTTPFailure = await http_get(request, timeout_s)
    if isinstance(response, HTTPFailure) and _HTTP_RESPONSE_TO_HTTPS in response.error:
        unencrypted = await http_get(request.unencrypted(), timeout_s)
        response = response if isinstance(unencrypted, HTTPFailure) else unencrypted
    return response.text(request) if isinstance(response, HTTPFailure) and not response.is_in_body else ""


async def _probe_tcp(host: str, port: int, timeout_s: float) -> tuple[bool, str]:
    """Probes by opening a connection; returns success and output.

    Follows: v1.36, pkg/probe/tcp/tcp.go, DoTCPProbe.
    """
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return False, f"dial tcp {join_host_port(host, port)}: i/o timeout"
    except OSError as error:
        return False, dial_error(host, port, error)
    writer.close()
    return True, ""
