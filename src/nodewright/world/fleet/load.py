"""A fleet and its workload out of the files that people have."""

import heapq
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.core.requests import pod_requests
from nodewright.model.fleet import Budget, FleetNode, FleetPod
from nodewright.model.objects import Pod
from nodewright.model.resource_names import is_extended
from nodewright.model.tolerations import tolerates
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import STDIN, File, named_files, read_file
from nodewright.world.fleet.gpus import GPUs
from nodewright.world.fleet.names import Names, taken
from nodewright.world.fleet.nodes import Furnished, Furniture, ReadNode, furnished
from nodewright.world.fleet.objects import Objects, ReadPod, fleet_pods
from nodewright.world.fleet.openb import NODE_COLUMNS, POD_COLUMNS, openb_nodes, openb_pods
from nodewright.world.fleet.rows import table_nodes, table_pods
from nodewright.world.fleet.shards import Shard, shards_of
from nodewright.world.fleet.tables import Table, is_table, unpacked
from nodewright.world.fleet.usage import read_usage, using
from nodewright.world.yaml import MAX_YAML_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which files hold a fleet, and how they are to be read."""

    nodes: tuple[str, ...] = ()
    """Files of nodes; what else they hold is passed over."""
    pods: tuple[str, ...] = ()
    """Files of pods and of what makes pods; nodes in them are passed over."""
    both: tuple[str, ...] = ()
    """Files of both."""
    namespace: str = "default"
    furniture: Furniture = field(default_factory=Furniture)
    gpu_annotation: str = ""
    usage: tuple[str, ...] = ()
    """Tables of what pods use over time."""
    max_bytes: int = MAX_YAML_BYTES
    """The most YAML in one document."""


@dataclass(frozen=True, kw_only=True)
class FleetInput:
    """Nodes, and the pods that come to them."""

    wish: Wish
    read: tuple[ReadNode, ...]
    """The nodes as their files tell them."""
    objects: Objects
    tables: tuple[Table, ...] = ()
    """Tables of pods."""
    shard: Shard | None = None
    """The part of a larger fleet that this is; None: all of it."""

    @cached_property
    def furnished(self) -> Furnished:
        """The nodes with machines and kubelets, and what was assumed for that."""
        return furnished(self.read, self.wish.furniture)

    @property
    def nodes(self) -> tuple[FleetNode, ...]:
        """The nodes."""
        return self.furnished.nodes

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The disruption budgets."""
        return tuple(self.objects.selecting.budgets)

    def configured(self, changes: Mapping[str, Any]) -> "FleetInput":
        """The same with other fields in the kubelets' configuration."""
        furniture = self.wish.furniture
        changed = replace(furniture, configuration={**furniture.configuration, **changes})
        return replace(self, wish=replace(self.wish, furniture=changed))

    def shaped(self, nodes: Sequence[ReadNode]) -> "FleetInput":
        """The same workload on other nodes."""
        return replace(self, read=tuple(nodes))

    def shards(self, label: str) -> "tuple[FleetInput, ...]":
        """The clusters that the nodes make by the values of a label, each with its part of the pods.

        Errors: InputError with every node that lacks the label.
        """
        return tuple(
            replace(
                self,
                shard=shard,
                read=tuple(node for node in self.read if shard.homes[node.name] == shard.value),
            )
            for shard in shards_of(label, self.read)
        )

    def pods(self) -> Iterator[FleetPod]:
        """The pods in the order of their arrival, those at one time in the order of the files.

        Tables of our own are read anew, row by row.

        Errors: InputError with what is wrong with a row, when it is reached; likewise for a pod that asks for
            an extended resource that no node has.
        """
        resources = frozenset(name for node in self.read for name in node.allocatable)
        if self.shard is not None:
            resources = self.shard.resources
        gpus = GPUs(self.wish.gpu_annotation, resources).checked()
        plain = fleet_pods(self.objects, self._expanded(), gpus)
        streams: list[Iterable[FleetPod]] = [sorted(plain, key=_turn)] if self.objects.pods else []
        names = Names()
        streams += [
            names.checked(openb_pods(table) if set(table.header) >= POD_COLUMNS else table_pods(table))
            for table in self.tables
        ]
        merged = (
            heapq.merge(*streams, key=_arrival) if len(streams) > 1 else iter(streams[0] if streams else ())
        )
        usage = {name: used for path in self.wish.usage for name, used in read_usage(Table(path)).items()}
        found = _known(merged, resources)
        if self.shard is not None:
            found = self.shard.of(found)
        return using(found, usage) if usage else found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was passed over, or may not be meant."""
        found = list(self.objects.loading.result().warnings)
        if self.objects.unknown:
            some = ", ".join(sorted(self.objects.unknown)[:5])
            found.append(f"fields of pods that are not known were passed over: {some}")
        if self.objects.ended:
            found.append(f"{self.objects.ended} pods that have ended were left out")
        return tuple(found)

    def _expanded(self) -> Iterator[ReadPod]:
        """The pods, as many of each controller as are not there already; of what runs once on each node that suits, one."""
        there, owners = self.objects.owners.there(), self.objects.owners
        for one in self.objects.pods:
            if one.owner is None or not one.is_made:
                yield one
            elif owners.is_made(one.owner):
                continue
            elif one.count is None:
                yield from self._everywhere(one, owners.nodes.get(one.owner, frozenset()))
            elif one.count > (had := there[one.owner]):
                yield replace(one, name=_later(one.name, had), count=one.count - had)

    def _everywhere(self, one: ReadPod, without: Container[str]) -> Iterator[ReadPod]:
        pod = self.objects.loading.result().workloads[one.template].pod
        stem = one.name.rpartition("-")[0]
        for number, node in enumerate(self.read):
            if node.name not in without and _suits(pod, node):
                yield replace(one, name=f"{stem}-{number}", only_on=node.name, count=1)


def _later(name: str, by: int) -> str:
    """The name of a copy so many further on."""
    stem, _, first = name.rpartition("-")
    return f"{stem}-{int(first) + by}" if by else name


def load_fleet(wish: Wish) -> FleetInput:
    """The nodes and the workload of the files.

    Errors: InputError with all faults of nodes and manifests at once; rows of tables are judged when they are read.
    """
    nodes = Objects(wish.namespace, wish.max_bytes)
    pods = Objects(wish.namespace, wish.max_bytes)
    both = Objects(wish.namespace, wish.max_bytes)
    found: list[ReadNode] = []
    tables: list[Table] = []
    faults: list[Fault] = []
    for path in _paths(wish.nodes, faults):
        try:
            found += _table_nodes(Table(path)) if is_table(path) else _taken(path, nodes)
        except InputError as error:
            faults += error.faults
    for path in _paths(wish.both, faults):
        _take(path, both, faults)
    for path in _paths(wish.pods, faults):
        if is_table(path):
            tables.append(Table(path))
        else:
            _take(path, pods, faults)
    found += [*nodes.nodes, *both.nodes]
    for one in (nodes, both, pods):
        faults += [*one.faults, *one.loading.faults]
    joined = _joined(both, pods)
    if not faults:
        faults += [*_twice(found), *_named_twice(joined.pods)]
    if not found and not faults:
        faults.append(Fault(rule="no nodes found"))
    if faults:
        raise InputError(faults)
    return FleetInput(wish=wish, read=tuple(found), objects=joined, tables=tuple(tables))


def _joined(one: Objects, other: Objects) -> Objects:
    """The workloads of both; one of them is nearly always empty."""
    first = len(one.loading.workloads)
    one.pods += [replace(pod, template=pod.template + first) for pod in other.pods]
    one.loading.workloads += other.loading.workloads
    one.loading.classes += other.loading.classes
    one.loading.runtimes += other.loading.runtimes
    one.loading.warnings += other.loading.warnings
    for kind, count in other.loading.skipped.items():
        one.loading.skipped[kind] = one.loading.skipped.get(kind, 0) + count
    one.selecting.budgets += other.selecting.budgets
    one.selecting.services += other.selecting.services
    one.owners.add(other.owners)
    one.ended += other.ended
    one.unknown |= other.unknown
    return one


def _paths(names: Sequence[str], faults: list[Fault]) -> list[str]:
    """The files meant; tables stay as they are named."""
    found = []
    for name in names:
        if is_table(name) or name == STDIN or (name.endswith(".gz") and Path(name).is_file()):
            found.append(name)
            continue
        try:
            found += named_files([name])
        except InputError as error:
            faults += error.faults
    return found


def _table_nodes(table: Table) -> list[ReadNode]:
    return list(openb_nodes(table) if set(table.header) >= NODE_COLUMNS else table_nodes(table))


def _taken(path: str, objects: Objects) -> list[ReadNode]:
    objects.take(_file(path))
    return []


def _take(path: str, objects: Objects, faults: list[Fault]) -> None:
    try:
        objects.take(_file(path))
    except InputError as error:
        faults += error.faults


def _file(path: str) -> File:
    """The file's content, decompressed if need be; each of its documents may be as large as is taken of one."""
    size = Path(path).stat().st_size if path != STDIN and Path(path).is_file() else 0
    file = read_file(path, max_bytes=max(MAX_YAML_BYTES, size))
    try:
        return file._replace(content=unpacked(file.content))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError([Fault(source=path, rule=f"cannot be read: {error}")]) from None


def _twice(nodes: Iterable[ReadNode]) -> Iterator[Fault]:
    seen: dict[str, str] = {}
    for node in nodes:
        if node.name in seen:
            rule = f"there is a node of this name already ({seen[node.name]})"
            yield Fault(source=node.place, path="metadata.name", value=node.name, rule=rule)
        seen.setdefault(node.name, node.place)


def _named_twice(pods: Iterable[ReadPod]) -> Iterator[Fault]:
    names = Names()
    for one in sorted((pod for pod in pods if not pod.is_made), key=_arrival):
        held = names.holder(f"{one.namespace}/{one.name}", one.arrives_s, one.runs_s, one.place)
        if held is not None:
            yield taken(one.place, "metadata.name", one.name, held)


def _suits(pod: Pod, node: ReadNode) -> bool:
    """Whether a DaemonSet makes a pod for the node.

    Follows: v1.36, pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
    """
    keeping = (taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute"))
    if not all(any(tolerates(one, taint) for one in pod.spec.tolerations) for taint in keeping):
        return False
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    return affinity_mismatch(pod.spec, node.name, labels) is None


def _known(pods: Iterable[FleetPod], resources: frozenset[str]) -> Iterator[FleetPod]:
    """The pods, of which none asks for a resource that nobody has."""
    seen: dict[int, Pod] = {}
    for one in pods:
        if id(one.pod) not in seen:
            seen[id(one.pod)] = one.pod  # kept, so that nothing else comes to stand at its address
            unknown = [name for name in pod_requests(one.pod) if is_extended(name) and name not in resources]
            if unknown:
                rule = f"no node has the resource {', '.join(sorted(unknown))}"
                raise InputError([Fault(source=f"{one.place}, Pod {one.full_name}", rule=rule)])
        yield one


def _turn(pod: FleetPod) -> tuple[float, bool]:
    """Of those that arrive at one time, first what each node has for itself."""
    return pod.arrives_s, not pod.only_on


def _arrival(pod: FleetPod | ReadPod) -> float:
    return pod.arrives_s
