"""What commands share that talk to an agent."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodewright.api.client import DEFAULT_SOCKET, Client, RefusedError
from nodewright.cli.app import ERROR
from nodewright.cli.options import namespace as in_namespace
from nodewright.model.objects import Pod
from nodewright.values.instant import Instant
from nodewright.world.decode import decode

SOCKET_VARIABLE = "NODEWRIGHT_SOCKET"
PODS, NODES = ("pods", "pod", "po"), ("nodes", "node", "no")


def talking(command: Callable[..., int]) -> Callable[..., int]:
    """The option --socket; the command gets the agent as its first argument. What the agent refuses becomes a message."""

    @wraps(command)
    def asking(*, socket: Path, **given: Any) -> int:
        try:
            return command(Client(socket), **given)
        except RefusedError as error:
            click.echo(f"Error from agent {error}", err=True)
            return ERROR

    with_option: Callable[..., int] = click.option(
        "--socket",
        envvar=SOCKET_VARIABLE,
        default=DEFAULT_SOCKET,
        show_default=True,
        type=click.Path(path_type=Path),
        metavar="PATH",
        help=f"Where the agent listens; ${SOCKET_VARIABLE} says it, too.",
    )(asking)
    return with_option


def scoped(command: Callable[..., int]) -> Callable[..., int]:
    """The options -n and -A; the command gets them as `scope`: a namespace, or None for all of them."""

    @wraps(command)
    def asking(*args: Any, namespace: str, everywhere: bool, **given: Any) -> int:
        return command(*args, scope=None if everywhere else namespace, **given)

    with_option: Callable[..., int] = click.option(
        "-A", "--all-namespaces", "everywhere", is_flag=True, help="Those of all namespaces."
    )(asking)
    return in_namespace(with_option)


def listed(scope: str | None, kind: str) -> tuple[str, ...]:
    """The route of all objects of a kind, in a namespace or everywhere."""
    return (f"api/v1/{kind}",) if scope is None else ("api/v1/namespaces", scope, kind)


def pod_route(namespace: str, name: str) -> tuple[str, ...]:
    """The route of a pod."""
    return ("api/v1/namespaces", namespace, "pods", name)


def pod_name(words: Sequence[str]) -> str:
    """The pod that is meant by `pod NAME`, `pod/NAME` or `NAME`.

    Errors: click.UsageError.
    """
    names = pod_names(words)
    if len(names) != 1:
        raise click.UsageError("the name of one pod is wanted")
    return names[0]


def pod_names(words: Sequence[str]) -> tuple[str, ...]:
    """The pods that are meant by `pods NAME...`, `pod/NAME...` or `NAME...`."""
    rest = tuple(words[1:]) if words and words[0] in PODS and len(words) > 1 else tuple(words)
    return tuple(_bare(word) for word in rest)


def _bare(word: str) -> str:
    kind, separator, name = word.partition("/")
    if not separator:
        return word
    if kind not in PODS:
        raise click.UsageError(f"{word!r}: only pods can be meant here")
    return name


def decoded(items: Iterable[Any]) -> list[Pod]:
    """Pods that an agent told of."""
    return [decode(item, Pod) for item in items]


def now() -> Instant:
    """The moment at which we are."""
    return Instant(time.time_ns())
