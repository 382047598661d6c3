"""Probes and hooks with what they name looked up: ports by number, commands with the manifest's values."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.environment.surroundings import Lacking
from nodewright.core.environment.variables import static_command
from nodewright.model.objects import Container
from nodewright.values.golang import NumberError, parse_int

_HIGHEST_PORT = 65535


def concrete(handler: Mapping[str, Any], container: Container) -> dict[str, Any] | Lacking:
    """The handler with its port as a number.

    Follows: v1.36, pkg/probe/util.go, ResolveContainerPort.

    >>> concrete({"tcpSocket": {"port": "8080"}}, Container())
    {'tcpSocket': {'port': 8080}}
    """
    found = dict(handler)
    for name in ("httpGet", "tcpSocket", "grpc"):
        if found.get(name) is not None:
            port = _port(found[name].get("port"), container)
            if isinstance(port, Lacking):
                return port
            found[name] = {**found[name], "port": port}
    return found


def probed_handler(handler: Mapping[str, Any], container: Container) -> dict[str, Any] | Lacking:
    """The handler of a probe: besides, its command has the values that variables have in the manifest.

    Follows: v1.36, pkg/kubelet/prober/prober.go, runProbe.
    """
    found = concrete(handler, container)
    if isinstance(found, Lacking) or found.get("exec") is None:
        return found
    command = static_command(tuple(found["exec"].get("command") or ()), container)
    return {**found, "exec": {"command": list(command)}}


def _port(told: object, container: Container) -> int | Lacking:
    port = told if isinstance(told, int) else None
    if port is None:
        named = (one.container_port for one in container.ports if one.name == told)
        port = next(named, None)
    if port is None:
        try:
            port = parse_int(str(told or ""))
        except NumberError as error:
            return Lacking(str(error))
    return port if 0 < port <= _HIGHEST_PORT else Lacking(f"invalid port number: {port}")
