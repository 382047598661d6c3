"""Asks a gRPC server how it is, by the protocol `grpc.health.v1`."""

import importlib
from typing import Any

from nodewright.values.duration import Duration
from nodewright.values.golang import quoted
from nodewright.world.errors import WorldError
from nodewright.world.http_get import joined

_CHECK = "/grpc.health.v1.Health/Check"
_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_USER_AGENT = "kube-probe/1.36"


async def ask_health(host: str, port: int, service: str, timeout_s: float) -> tuple[bool, str]:
    """Whether the service says that it serves, and what was said.

    Follows: v1.36, pkg/probe/grpc/grpc.go, Probe.
    Errors:  WorldError where the Python package grpcio is not there.
    """
    try:
        grpc: Any = importlib.import_module("grpc")
        aio: Any = importlib.import_module("grpc.aio")
    except ImportError:
        raise WorldError(
            "ask by gRPC", joined(host, port), "the Python package grpcio is not installed"
        ) from None
    address, limit = joined(host, port), Duration(round(timeout_s * 10**9))
    options = [("grpc.primary_user_agent", _USER_AGENT), ("grpc.enable_http_proxy", 0)]
    async with aio.insecure_channel(address, options=options) as channel:
        check = channel.unary_unary(_CHECK)
        try:
            said = await check(_request(service), timeout=timeout_s, wait_for_ready=True)
        except aio.AioRpcError as error:
            return False, _failure(error, grpc, (address, limit, channel))
    state = _state(said)
    if state == "SERVING":
        return True, "service healthy"
    return False, f"service unhealthy (responded with {quoted(state)})"


def _failure(error: Any, grpc: Any, asked: tuple[str, Duration, Any]) -> str:
    address, limit, channel = asked
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


def _request(service: str) -> bytes:
    """A HealthCheckRequest: the service's name in field 1."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _varint(number: int) -> bytes:
    head = b""
    while number > 0x7F:
        head, number = head + bytes([number & 0x7F | 0x80]), number >> 7
    return head + bytes([number])


def _state(said: bytes) -> str:
    """The state in a HealthCheckResponse: a number in field 1."""
    number = said[1] if len(said) > 1 and said[0] == 0x08 else 0
    return _STATES[number] if number < len(_STATES) else str(number)
