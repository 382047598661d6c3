"""Options and helpers of the commands that connect to an agent."""

import socket as socket_module
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodewright.cli.options import namespace_option
from nodewright.cluster.client.agent_client import (
    DEFAULT_SOCKET,
    SOCKET_VARIABLE,
    AgentClient,
    AgentStatusError,
)
from nodewright.documents.output.command_line import option
from nodewright.documents.output.terminal import ERROR, print_message
from nodewright.model.errors import Fault, InputError
from nodewright.model.values.instant import Instant

POD_RESOURCE_NAMES, NODE_RESOURCE_NAMES = ("pods", "pod", "po"), ("nodes", "node", "no")


def with_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Adds --socket; the command receives the client as its first argument. Errors from the agent are printed."""

    @wraps(command)
    def with_client(*, socket: Path, **parameters: Any) -> int:
        if not hasattr(socket_module, "AF_UNIX"):
            raise InputError([Fault(rule="not Linux: agents and their sockets are on Linux only")])
        try:
            return command(AgentClient(socket), **parameters)
        except AgentStatusError as error:
            print_message(f"Error from agent {error}")
            return ERROR

    with_option: Callable[..., int] = option(
        "--socket PATH",
        f"The agent's socket. Environment variable: {SOCKET_VARIABLE}.",
        envvar=SOCKET_VARIABLE,
        default=DEFAULT_SOCKET,
        type=click.Path(path_type=Path),
    )(with_client)
    return with_option


def scope_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds -n and -A; the command receives them as `scope`: a namespace, or None for all namespaces."""

    @wraps(command)
    def with_scope(*args: Any, namespace: str, all_namespaces: bool, **parameters: Any) -> int:
        return command(*args, scope=None if all_namespaces else namespace, **parameters)

    with_option: Callable[..., int] = option(
        "-A, --all-namespaces", "List objects of all namespaces.", name="all_namespaces"
    )(with_scope)
    return namespace_option(with_option)


def list_route(scope: str | None, kind: str) -> tuple[str, ...]:
    """The route of all objects of a kind, in a namespace or in all."""
    return (f"api/v1/{kind}",) if scope is None else ("api/v1/namespaces", scope, kind)


def pod_route(namespace: str, name: str) -> tuple[str, ...]:
    """The route of a pod."""
    return ("api/v1/namespaces", namespace, "pods", name)


def pod_name(words: Sequence[str]) -> str:
    """The name of the pod in `pod NAME`, `pod/NAME` or `NAME`.

    Errors: click.UsageError.
    """
    names = pod_names(words)
    if len(names) != 1:
        raise click.UsageError("specify exactly one pod")
    return names[0]


def pod_names(words: Sequence[str]) -> tuple[str, ...]:
    """The names of the pods in `pods NAME...`, `pod/NAME...` or `NAME...`."""
    rest = tuple(words[1:]) if words and words[0] in POD_RESOURCE_NAMES and len(words) > 1 else tuple(words)
    return tuple(_without_kind(word) for word in rest)


def _without_kind(word: str) -> str:
    kind, separator, name = word.partition("/")
    if not separator:
        return word
    if kind not in POD_RESOURCE_NAMES:
        raise click.UsageError(f"{word!r} is not a pod")
    return name


def now() -> Instant:
    """The current time."""
    return Instant(time.time_ns())
