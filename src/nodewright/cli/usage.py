"""What commands are told of a node's usage: the options, and the reading that they come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click

from nodewright.ask import Node
from nodewright.cli.options import max_bytes
from nodewright.core.arrival import identified
from nodewright.core.eviction import (
    Capacities,
    Filesystems,
    attributed,
    filesystems_of,
    observations,
    table_reading,
    with_available,
)
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod
from nodewright.model.thresholds import Signal
from nodewright.model.usage import Usage
from nodewright.model.usage_table import UsageTable
from nodewright.node.events import PodFound
from nodewright.node.pressure import capacities_of, claims_of
from nodewright.node.step import step
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.errors import Fault, InputError
from nodewright.world.machine.usage import usage_here
from nodewright.world.manifests import load_workloads
from nodewright.world.summary import Reading, load_usage

Command = TypeVar("Command", bound=Callable[..., Any])

_META = "nodewright.usage"
_DISKS = {
    "one": Filesystems(),
    "images": Filesystems(dedicated_image_fs=True),
    "split": Filesystems(dedicated_image_fs=True, dedicated_container_fs=True),
}


@dataclass(slots=True)
class _Asked:
    """What the command line says of usage."""

    paths: dict[str, str] = field(default_factory=dict)
    manifests: tuple[str, ...] = ()
    available: Mapping[Signal, int] = field(default_factory=dict)
    disks: str | None = None
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A node with its pods, and the usage that was told of it."""

    node: Node
    usage: Usage
    after: Usage | None
    """The reading once the node has given back what it can; None: not told."""
    filesystems: Filesystems
    warnings: tuple[str, ...] = ()
    """What is odd about the reading."""


def _asked() -> _Asked:
    found: _Asked = click.get_current_context().meta.setdefault(_META, _Asked())
    return found


def _path(context: click.Context, option: click.Parameter, path: str | None) -> None:
    del context
    if path is not None:
        assert option.name is not None
        _asked().paths[option.name] = path


def _manifests(context: click.Context, option: click.Parameter, paths: tuple[str, ...]) -> None:
    del context, option
    _asked().manifests = paths


def _available(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> None:
    found: dict[Signal, int] = {}
    for text in texts:
        name, _, amount = text.partition("=")
        try:
            left = Quantity.parse(amount)
        except QuantityError as error:
            raise click.BadParameter(f"{text}: {error}", context, option) from None
        if name not in set(Signal):
            signals = ", ".join(Signal)
            raise click.BadParameter(f"{name!r} is no signal; there are {signals}", context, option)
        if left.sign() < 0:
            raise click.BadParameter(f"{text}: must not be negative", context, option)
        found[Signal(name)] = left.value()
    _asked().available = found


def _disks(context: click.Context, option: click.Parameter, name: str | None) -> None:
    del context, option
    _asked().disks = name


def _live(context: click.Context, option: click.Parameter, live: bool) -> None:  # noqa: FBT001 - click's call
    del context, option
    _asked().is_live = live


_OPTIONS = (
    click.option(
        "--usage",
        "usage",
        metavar="FILE|-",
        expose_value=False,
        callback=_path,
        help="What is used: the kubelet's /stats/summary, a NodeUsage, or a table of pods (.csv).",
    ),
    click.option(
        "--after",
        "after",
        metavar="FILE",
        expose_value=False,
        callback=_path,
        help="The same, once the node has removed dead containers and unused images. Default: that brings nothing.",
    ),
    click.option(
        "--live",
        is_flag=True,
        expose_value=False,
        callback=_live,
        help="What this machine uses now: /proc, its file systems, and the cgroups of pods.",
    ),
    click.option(
        "--available",
        multiple=True,
        metavar="SIGNAL=AMOUNT",
        expose_value=False,
        callback=_available,
        help="So much is left, whatever was read, e.g. memory.available=80Mi. Repeatable.",
    ),
    click.option(
        "-f",
        "--filename",
        multiple=True,
        metavar="FILE|DIR|-",
        expose_value=False,
        callback=_manifests,
        help="Pods that run on the node beside those of its profile, e.g. of `kubectl get pods -A -o yaml`. Repeatable.",
    ),
    click.option(
        "--filesystems",
        type=click.Choice(list(_DISKS)),
        expose_value=False,
        callback=_disks,
        help="Disks: one; images and writable layers apart; images alone apart. Default: as sizes tell.",
    ),
)


def options(command: Command) -> Command:
    """The options that say what is used; `observed` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def observed(node: Node) -> Observed:
    """The node with the pods and the usage that the command line tells of it.

    Errors: InputError with all that is wrong with the files; click.UsageError where no usage is told.
    """
    asked = _asked()
    if asked.is_live and "usage" in asked.paths:
        raise click.UsageError("--usage and --live exclude each other")
    if not asked.paths.get("usage") and not asked.available and not asked.is_live:
        raise click.UsageError("--usage, --live or --available has to say what is used")
    reading: Reading = usage_here() if asked.is_live else Usage()
    if "usage" in asked.paths:
        reading = load_usage(asked.paths["usage"], max_bytes=max_bytes())
    name = reading.node.node_name if isinstance(reading, Usage) else ""
    node, warnings = _with_pods(node, asked.manifests, name or node.name)
    usage, odd = _as_usage(node, reading, asked.available)
    after = None
    if "after" in asked.paths:
        after, _ = _as_usage(node, load_usage(asked.paths["after"], max_bytes=max_bytes()), {})
    disks = _filesystems(node, usage, asked.disks)
    return Observed(
        node=node,
        usage=usage,
        after=after,
        filesystems=disks,
        warnings=(*warnings, *odd, *_remarks(node, usage)),
    )


def _with_pods(node: Node, manifests: Sequence[str], name: str) -> tuple[Node, tuple[str, ...]]:
    """The node with the pods of the manifests that are on it, and what is odd about them."""
    if not manifests:
        return node, ()
    loaded = load_workloads(manifests, max_bytes=max_bytes())
    state, elsewhere = node.state, 0
    for workload in loaded.workloads:
        pod = with_defaults(identified(workload.pod))
        if pod.has_ended or pod.uid in state.pods:
            continue
        if pod.spec.node_name not in ("", name):
            elsewhere += 1
            continue
        # Who holds which CPUs does not matter here.
        state = step(state, PodFound(pod, is_placed=True)).state
    odd = (f"{_count(elsewhere)} of the manifests on other nodes than {name}",) if elsewhere else ()
    return replace(node, state=state), (*loaded.warnings, *odd)


def _as_usage(node: Node, reading: Reading, available: Mapping[Signal, int]) -> tuple[Usage, tuple[str, ...]]:
    capacities = capacities_of(node.config)
    if isinstance(reading, UsageTable):
        _check_capacities(reading, capacities)
        reading = table_reading(reading, capacities, claims_of(node.state))
    found = attributed(with_available(reading, available, capacities), node.state.pods.values())
    odd = [
        f"{one.namespace}/{one.name} has another uid in the reading, {one.uid}: taken for the same pod"
        for one in found.renamed
        if one.uid
    ]
    if found.strangers:
        names = ", ".join(
            f"{one.namespace}/{one.name}" if one.name else one.uid for one in found.strangers[:3]
        )
        more = ", ..." if len(found.strangers) > 3 else ""
        odd.append(
            f"{_count(len(found.strangers))} of the reading not on the node, passed over: {names}{more}"
        )
    return found.usage, tuple(odd)


def _check_capacities(table: UsageTable, capacities: Capacities) -> None:
    """Refuse what is available of something of which nobody says how much there is, or more than there is.

    Errors: InputError.
    """
    faults = []
    for name, left in table.available.items():
        written = table.capacity.get(name)
        whole = capacities.of(Signal(name)) if written is None else written.value()
        path = f"spec.available[{name}]"
        if not whole and written is None:
            rule = f"the node's description does not say how much there is: spec.capacity[{name}] may"
            faults.append(Fault(path=path, value=str(left), rule=rule))
        elif left.value() > whole:
            faults.append(Fault(path=path, value=str(left), rule=f"is more than there is, {whole}"))
    if faults:
        raise InputError(faults)


def _filesystems(node: Node, usage: Usage, wanted: str | None) -> Filesystems:
    if wanted is not None:
        return _DISKS[wanted]
    found = filesystems_of(usage)
    if found == Filesystems() and node.config.facts.image_fs is not None:
        return _DISKS["images"]
    return found


def _remarks(node: Node, usage: Usage) -> Iterator[str]:
    """What people may not have meant: pods without stats, signals without a capacity."""
    seen = {one.pod_ref.uid for one in usage.pods}
    without = [pod for uid, pod in node.state.pods.items() if uid not in seen]
    if without and usage.pods:
        yield f"{_count(len(without))} without stats, ranked first as the kubelet does: {_names(without)}"
    for signal, one in observations(usage).items():
        if one.capacity.value() == 0:
            yield f"{signal} has a capacity of 0: thresholds in percent are never met"
        elif one.available.compare(one.capacity) > 0:
            yield f"{signal} has more available than there is: {one.available} of {one.capacity}"


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.full_name for pod in pods[:3]) + (", ..." if len(pods) > 3 else "")


def _count(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
