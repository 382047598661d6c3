"""Loads a fleet and its workload from files; divides it by a label of its nodes."""

import heapq
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.files.gzipped import decompressed
from nodewright.documents.files.process_tuning import rare_collections
from nodewright.documents.files.regular_files import error_text
from nodewright.documents.formats.claim_objects import joined_claims
from nodewright.documents.formats.documents import (
    PATCH_FILES,
    STDIN,
    InputFile,
    found_instead,
    named_files,
    patch_files,
    read_file,
)
from nodewright.documents.formats.json_documents import NoteProgress
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.predicates.node_affinity import daemon_pod_obstacle
from nodewright.fleet.load.assembled_nodes import (
    DEFAULT_CONFIGURATION,
    AssembledNodes,
    NodeDefaults,
    NodeEntry,
    assembled_nodes,
)
from nodewright.fleet.load.csv_tables import (
    MAX_UNPACKED_BYTES,
    UNPACKED_LIMIT,
    Table,
    is_table,
    read_usage,
    table_nodes,
    table_pods,
    with_usage,
)
from nodewright.fleet.load.fleet_objects import (
    FleetObjects,
    PodEntry,
    PodNames,
    duplicate_name_fault,
    fleet_pods,
)
from nodewright.fleet.load.gpu_annotations import GPUAnnotations
from nodewright.fleet.load.openb import NODE_COLUMNS, POD_COLUMNS, openb_nodes, openb_pods
from nodewright.fleet.load.pod_controllers import DAEMON_SET, MAX_REPLICAS
from nodewright.fleet.workload import DisruptionBudget, FleetNode, FleetPod
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.node_profile import NodeProfile, with_cpu_decider
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted
from nodewright.model.releases.release_table import Release, applied_rules, release_warning

_MAX_REFUSALS = 5


class FleetFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a fleet, and options for reading them."""

    nodes: tuple[str, ...] = ()
    """Files of nodes; other objects in them are ignored."""
    pods: tuple[str, ...] = ()
    """Files of pods and controllers; nodes in them are ignored."""
    both: tuple[str, ...] = ()
    """Files of both."""
    built: tuple[InputFile, ...] = ()
    """What kustomize built: of both."""
    recursive: bool = False
    """Whether directories below those named count."""
    namespace: str = "default"
    node_defaults: NodeDefaults = msgspec.field(default_factory=NodeDefaults)
    gpu_annotation: str = ""
    usage: tuple[str, ...] = ()
    """Tables of the usage of pods over time."""
    max_bytes: int = MAX_YAML_BYTES
    """Maximum size of a YAML document."""
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES
    """Maximum size of a gzipped file when it is unpacked."""
    max_replicas: int = MAX_REPLICAS
    """Maximum number of pods that the controllers of all manifests create."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes with one value of a label."""

    label: str
    value: str
    value_by_node: Mapping[str, str]
    """The label's value for each node of the fleet."""
    resources: frozenset[str]
    """The resources of all nodes of the fleet."""

    def pods_of(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods of this shard: those on its nodes or with its label; all other pods are distributed round-robin."""
        values = tuple(dict.fromkeys(self.value_by_node.values()))
        distributed_count = 0
        for pod in pods:
            value = self.value_by_node.get(pod.node or pod.required_node) or pod.pod.spec.node_selector.get(
                self.label
            )
            if value is None:
                value = values[distributed_count % len(values)]
                distributed_count += 1
            if value == self.value:
                yield pod


def shards_of(label: str, nodes: Sequence[NodeEntry]) -> tuple[Shard, ...]:
    """The shards in order of the label's value.

    Errors: InputError with all nodes without the label.
    """
    value_by_node = {node.name: node.labels.get(label, "") for node in nodes}
    rule = f"--shards: the node has no label {label}"
    faults = [
        Fault(source=node.source, path=f"metadata.labels[{label}]", rule=rule)
        for node in nodes
        if not value_by_node[node.name]
    ]
    if faults:
        raise InputError(faults)
    value_by_node = dict(sorted(value_by_node.items(), key=lambda item: (item[1], item[0])))
    resources = frozenset(name for node in nodes for name in node.allocatable)
    return tuple(
        Shard(label=label, value=value, value_by_node=value_by_node, resources=resources)
        for value in dict.fromkeys(value_by_node.values())
    )


class FleetInput(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Nodes and the pods that arrive at them."""

    files: FleetFiles
    node_entries: tuple[NodeEntry, ...]
    """The nodes as read from files."""
    objects: FleetObjects
    tables: tuple[Table, ...] = ()
    """Tables of pods."""
    planned: tuple[str, ...] = ()
    """What is assumed of nodes that do not exist yet, and what is not known of them."""
    node_claims: ClaimCluster | None = None
    """The objects of Dynamic Resource Allocation in files of nodes."""
    shard: Shard | None = None
    """The shard of a larger fleet; None: the whole fleet."""

    @cached_property
    def assembled(self) -> AssembledNodes:
        """The nodes with machines and kubelets, and the assumptions made."""
        return assembled_nodes(self.node_entries, self.files.node_defaults)

    @property
    def nodes(self) -> tuple[FleetNode, ...]:
        """The nodes."""
        return self.assembled.nodes

    @property
    def budgets(self) -> tuple[DisruptionBudget, ...]:
        """The disruption budgets."""
        return tuple(self.objects.pod_selectors.budgets)

    @cached_property
    def claims(self) -> ClaimCluster | None:
        """The objects of Dynamic Resource Allocation; None: there are none."""
        return joined_claims(self.objects.manifests.result().claims, self.node_claims)

    def with_configuration(self, changes: Mapping[str, Any]) -> "FleetInput":
        """The fleet with changed fields of the kubelet configuration."""
        defaults = self.files.node_defaults
        changed = replace(defaults, configuration={**defaults.configuration, **changes})
        return replace(self, files=replace(self.files, node_defaults=changed))

    def with_nodes(self, nodes: Sequence[NodeEntry]) -> "FleetInput":
        """The same workload on other nodes."""
        return replace(self, node_entries=tuple(nodes))

    def shards(self, label: str) -> "tuple[FleetInput, ...]":
        """The fleet divided by the values of a label, each part with its pods.

        Errors: InputError with all nodes without the label.
        """
        return tuple(
            replace(
                self,
                shard=shard,
                node_entries=tuple(
                    node for node in self.node_entries if shard.value_by_node[node.name] == shard.value
                ),
            )
            for shard in shards_of(label, self.node_entries)
        )

    def pods(self) -> Iterator[FleetPod]:
        """The pods in the order of arrival, those with equal times in the order of the files.

        Tables are read row by row on each call.

        Errors: InputError for a faulty row, when it is reached.
        """
        resources = frozenset(name for node in self.node_entries for name in node.allocatable)
        if self.shard is not None:
            resources = self.shard.resources
        gpus = GPUAnnotations(self.files.gpu_annotation, resources).validated()
        plain = fleet_pods(self.objects, self._expanded(), gpus)
        streams: list[Iterable[FleetPod]] = (
            [sorted(plain, key=_arrival_and_daemon_first)] if self.objects.pods else []
        )
        names = PodNames()
        streams += [
            names.checked_unique(openb_pods(table) if set(table.header) >= POD_COLUMNS else table_pods(table))
            for table in self.tables
        ]
        merged = (
            heapq.merge(*streams, key=_arrival) if len(streams) > 1 else iter(streams[0] if streams else ())
        )
        usage = {
            name: used
            for path in self.files.usage
            for name, used in read_usage(Table(path, self.files.max_unpacked_bytes)).items()
        }
        pods = merged if self.shard is None else self.shard.pods_of(merged)
        return with_usage(pods, usage) if usage else pods

    @property
    def pod_count(self) -> int | None:
        """Number of pods that arrive; None for a shard, whose pods are known only when they arrive.

        Errors: as `pods`.
        """
        if self.shard is not None:
            return None
        counts = (1 if entry.count is None else entry.count for entry in self._expanded())
        return sum(counts) + sum(1 for table in self.tables for _ in table.rows())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about ignored content and possible mistakes."""
        warnings = [*self.objects.manifests.result().warnings, *self.planned]
        if self.objects.unknown_fields:
            names_text = ", ".join(sorted(self.objects.unknown_fields)[:5])
            warnings.append(f"unknown fields of pods are ignored: {names_text}")
        releases = sorted({entry.release for entry in self.node_entries})
        rules = (applied_rules(Release.parse(release)) for release in releases)
        warnings += filter(None, map(release_warning, rules))
        warnings += self._uncreated_pods()
        deciders = Counter(entry.cpu_decider for entry in self.node_entries if entry.cpu_decider)
        warnings += (
            f"CPUs of {counted(count, 'node')} are decided by {name}: what their kubelets place is not judged"
            for name, count in sorted(deciders.items())
        )
        for entry in self.objects.pods:
            if entry.count is None and not any(self._daemon_pods(entry, ())):
                name = entry.name.rpartition("-")[0]
                warnings.append(
                    f"DaemonSet {entry.namespace}/{name} creates no pod: no node has the labels that it selects"
                    " without a taint that it does not tolerate"
                )
        if self.objects.ended_pods:
            warnings.append(f"{counted(self.objects.ended_pods, 'pod')} that ended: left out")
        warnings += self._pods_on_missing_nodes()
        if resizing := self.objects.resizing_pods:
            warnings.append(f"{counted(resizing, 'pod')} with an incomplete resize: counted as specified")
        workloads = self.objects.manifests.result().workloads
        gated = (entry for entry in self.objects.pods if workloads[entry.template].pod.spec.scheduling_gates)
        if count := sum(1 if entry.count is None else entry.count for entry in gated):
            warnings.append(f"{counted(count, 'pod')} with scheduling gates: placed as if without")
        return tuple(warnings)

    def _expanded(self) -> Iterator[PodEntry]:
        """The pods: of each controller those that do not exist yet, of each DaemonSet one per matching node."""
        controllers = self.objects.controllers
        existing = controllers.existing_pods()
        workloads = self.objects.manifests.result().workloads
        created_count = 0
        for pod in self.objects.pods:
            if workloads[pod.template].refusal is not None:
                continue
            if self._is_on_missing_node(pod):
                if not self._is_placed_anew(pod):
                    continue
                pod = replace(pod, node="")  # noqa: PLW2901 - the same pod, without its node
            if pod.is_from_template:
                created_count += len(self.node_entries) if pod.count is None else pod.count
                self._check_replicas(created_count, pod)
            if pod.owner is None or not pod.is_from_template:
                yield pod
            elif controllers.has_parent_in_files(pod.owner):
                continue
            elif pod.count is None:
                yield from self._daemon_pods(pod, controllers.nodes.get(pod.owner, frozenset()))
            elif pod.count > (existing_count := existing[pod.owner]):
                yield replace(
                    pod, name=_name_with_offset(pod.name, existing_count), count=pod.count - existing_count
                )

    @cached_property
    def _node_names(self) -> Container[str]:
        """The names of all nodes, those of other shards included."""
        return {node.name for node in self.node_entries} if self.shard is None else self.shard.value_by_node

    def _is_on_missing_node(self, pod: PodEntry) -> bool:
        return bool(pod.node) and pod.node not in self._node_names

    def _is_placed_anew(self, pod: PodEntry) -> bool:
        """Whether a pod of a node that does not exist, or its replacement, is placed on another node.

        In files of both the pods are of these nodes, and garbage collection deletes those of others; it forces that
        after 40 seconds, and the pod's controller creates another one.

        Follows: v1.36, pkg/controller/podgc/gc_controller.go, gcOrphaned.
        """
        has_own_nodes = bool(self.files.nodes or self.files.pods)
        return has_own_nodes or bool(
            pod.owner and not pod.is_from_template and pod.owner.kind not in (DAEMON_SET[1], "Node")
        )

    def _pods_on_missing_nodes(self) -> Iterator[str]:
        """Warnings about pods whose nodes do not exist."""
        groups: dict[bool, list[PodEntry]] = {}
        for pod in filter(self._is_on_missing_node, self.objects.pods):
            groups.setdefault(self._is_placed_anew(pod), []).append(pod)
        for is_placed, pods in groups.items():
            if not is_placed:
                outcome = "left out: they stay Pending until pod garbage collection deletes them"
            elif self.files.nodes or self.files.pods:
                outcome = "placed as if on none"
            else:
                outcome = (
                    "placed as their controllers' replacements, once pod garbage collection deletes them"
                )
            names = ", ".join(f"{pod.namespace}/{pod.name} ({pod.node})" for pod in pods[:3])
            count = counted(sum(1 if pod.count is None else pod.count for pod in pods), "pod")
            yield f"{count} on nodes that do not exist, {outcome}: {names}{', ...' if len(pods) > 3 else ''}"

    def _check_replicas(self, created_count: int, pod: PodEntry) -> None:
        limit = self.files.max_replicas
        if created_count > limit:
            rule = f"controllers create more than {limit} pods with it, which is the limit of --max-replicas"
            raise InputError([Fault(source=f"{pod.source}, {pod.name}", value=pod.count, rule=rule)])

    def _uncreated_pods(self) -> Iterator[str]:
        """Warnings about pods that the API server refuses, and about quotas, which are not applied."""
        texts: dict[str, None] = {}
        workloads = self.objects.manifests.result().workloads
        for entry in self.objects.pods:
            refusal = workloads[entry.template].refusal
            if refusal is not None:
                name = f"{refusal.owner_kind or 'Pod'} {entry.namespace}/{refusal.owner or refusal.pod}"
                texts[f"{name} is left out: {refusal.sentence()}"] = None
        yield from list(texts)[:_MAX_REFUSALS]
        if len(texts) > _MAX_REFUSALS:
            yield f"{len(texts) - _MAX_REFUSALS} more are left out, because the API server refuses their pods"
        if quotas := self.objects.manifests.quota_count:
            yield f"ResourceQuotas ({quotas}) are not applied: nodewright quota shows the pods beyond them"

    def _daemon_pods(self, entry: PodEntry, without: Container[str]) -> Iterator[PodEntry]:
        pod = self.objects.manifests.result().workloads[entry.template].pod
        stem = entry.name.rpartition("-")[0]
        for number, node in enumerate(self.node_entries):
            obstacle = daemon_pod_obstacle(pod.spec, node.name, node.labels, node.taints)
            if node.name not in without and obstacle is None:
                yield replace(entry, name=f"{stem}-{number}", required_node=node.name, count=1)


@rare_collections()
def load_fleet(files: FleetFiles, note_progress: NoteProgress | None = None) -> FleetInput:
    """The nodes and the workload of the files.

    Errors: InputError with all faults of nodes and manifests; rows of tables are checked when they are read.
    """
    nodes, pods, both = (
        FleetObjects(files.namespace, files.max_bytes, note_progress=note_progress) for _ in range(3)
    )
    entries, tables, faults = list[NodeEntry](), list[Table](), list[Fault]()
    limit = files.max_unpacked_bytes
    table = partial(Table, max_unpacked_bytes=limit)
    for names, objects in ((files.nodes, nodes), (files.both, both), (files.pods, pods)):
        paths = _paths(names, faults, recursive=files.recursive)
        patches = patch_files(path for path in paths if path not in names)
        for path in paths:
            if is_table(path) and objects is nodes:
                entries += _table_nodes(table(path), faults)
            elif is_table(path) and objects is pods:
                tables.append(table(path))
            elif path in patches:
                objects.manifests.count_skipped(PATCH_FILES)
            else:
                _read_file(path, objects, faults, is_found=path not in names, max_unpacked_bytes=limit)
    for file in files.built:
        both.read_file(file)
    entries += [*nodes.completed_nodes(), *both.completed_nodes()]
    for objects in (nodes, both, pods):
        faults += [*objects.faults, *objects.manifests.faults]
    nothing_found = [] if tables else list(_nothing_found(files, pods, both))
    if not entries and not faults:
        faults.append(_no_nodes(nodes.kinds() + both.kinds()))
    joined = _joined(both, pods)
    if not faults:
        faults += [*_node_name_faults(entries), *_duplicate_pods(joined.pods)]
    if faults or nothing_found:
        raise InputError(faults or nothing_found)
    return FleetInput(
        files=files,
        node_entries=tuple(entries),
        objects=joined,
        tables=tuple(tables),
        planned=(*nodes.planned.notes, *both.planned.notes),
        node_claims=nodes.manifests.result().claims,
    )


def bound_profiles(
    paths: Sequence[str], configuration: Mapping[str, Any] | None
) -> tuple[list[tuple[NodeProfile, str]], tuple[str, ...]]:
    """The nodes of clusters' objects with the pods that are bound to them, on assumed machines; and warnings.

    ``configuration`` is the kubelet's on these nodes.

    Errors: InputError with all faults of the files.
    """
    defaults = NodeDefaults(configuration=DEFAULT_CONFIGURATION if configuration is None else configuration)
    tables = tuple(path for path in paths if is_table(path))
    objects = tuple(path for path in paths if path not in tables)
    fleet = load_fleet(FleetFiles(nodes=tables, both=objects, node_defaults=defaults))
    pods: dict[str, list[Pod]] = {}
    for fleet_pod in fleet.pods():
        name, namespace = fleet_pod.name, fleet_pod.namespace
        # Pods that differ only in their names share one object with the uid of the first.
        uid = f"{namespace}.{name}"
        meta = replace(fleet_pod.pod.metadata, name=name, namespace=namespace, uid=uid)
        pods.setdefault(fleet_pod.node, []).append(replace(fleet_pod.pod, metadata=meta))
    nodes = []
    for entry, node in zip(fleet.node_entries, fleet.nodes, strict=True):
        meta = replace(node.profile.metadata, name=node.name)
        spec = replace(
            node.profile.spec,
            labels=dict(node.labels),
            taints=node.taints,
            pods=tuple(pods.get(node.name, ())),
        )
        spec = with_cpu_decider(spec, {}, entry.cpu_decider)
        nodes.append((replace(node.profile, metadata=meta, spec=spec), node.source))
    shapes = ", ".join(f"{count} {name}" for name, count in fleet.assembled.assumed_shapes.items())
    assumed = (f"machines of nodes are assumed from their amounts: {shapes}",) if shapes else ()
    return nodes, (*fleet.warnings, *assumed)


def _name_with_offset(name: str, by: int) -> str:
    """The name with its number increased."""
    stem, _, first = name.rpartition("-")
    return f"{stem}-{int(first) + by}" if by else name


def _no_nodes(kinds: Mapping[str, int]) -> Fault:
    expected = "; nodes are objects of kind Node, or rows of a table (.csv)" if kinds else ""
    return Fault(rule=f"no nodes found{found_instead(kinds)}{expected}")


def _nothing_found(files: FleetFiles, pods: FleetObjects, both: FleetObjects) -> Iterator[Fault]:
    """The faults of files in which there is nothing of what they are read for."""
    for names, objects, kinds in ((files.pods, pods, "pods"), (files.both, both, "nodes or pods")):
        nodes = objects.nodes if objects is both else []
        manifests = objects.manifests
        has_pods = objects.pods or objects.ended_pods or manifests.workloads or manifests.waiting
        if names and not (nodes or has_pods):
            yield Fault(rule=f"no {kinds} found{found_instead(objects.kinds())}", source=", ".join(names))


def _joined(first_objects: FleetObjects, other: FleetObjects) -> FleetObjects:
    """Merges the second into the first, and returns it."""
    first = len(first_objects.manifests.workloads)
    first_objects.pods += [replace(pod, template=pod.template + first) for pod in other.pods]
    first_objects.manifests.merge(other.manifests)
    first_objects.pod_selectors.budgets += other.pod_selectors.budgets
    first_objects.pod_selectors.services += other.pod_selectors.services
    first_objects.controllers.merge(other.controllers)
    first_objects.ended_pods += other.ended_pods
    first_objects.resizing_pods += other.resizing_pods
    first_objects.add_waiting()
    first_objects.unknown_fields |= other.unknown_fields
    return first_objects


def _paths(names: Sequence[str], faults: list[Fault], *, recursive: bool) -> list[str]:
    """The paths of all files; directories are expanded."""
    paths = []
    for name in names:
        if is_table(name) or name == STDIN or (name.endswith(".gz") and Path(name).is_file()):
            paths.append(name)
            continue
        try:
            paths += named_files([name], recursive=recursive)
        except InputError as error:
            faults += error.faults
    return paths


def _table_nodes(table: Table, faults: list[Fault]) -> list[NodeEntry]:
    try:
        return list(openb_nodes(table) if set(table.header) >= NODE_COLUMNS else table_nodes(table))
    except InputError as error:
        faults += error.faults
        return []


def _read_file(
    path: str, objects: FleetObjects, faults: list[Fault], *, is_found: bool, max_unpacked_bytes: int
) -> None:
    try:
        objects.read_file(_input_file(path, max_unpacked_bytes)._replace(is_found=is_found))
    except InputError as error:
        faults += error.faults


def _input_file(path: str, max_unpacked_bytes: int) -> InputFile:
    """The file's content, decompressed if necessary; the size limit applies to each document."""
    size = Path(path).stat().st_size if path != STDIN and Path(path).is_file() else 0
    file = read_file(path, max_bytes=max(MAX_YAML_BYTES, size))
    try:
        return file._replace(content=decompressed(file.content, max_unpacked_bytes, UNPACKED_LIMIT))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError([Fault(source=path, rule=f"cannot be read: {error_text(error)}")]) from None


def _node_name_faults(nodes: Iterable[NodeEntry]) -> Iterator[Fault]:
    sources: dict[str, str] = {}
    for node in nodes:
        for rule in dns1123_subdomain_errors(node.name):
            yield Fault(source=node.source, path="metadata.name", value=node.name, rule=rule)
        if node.name in sources:
            rule = f"a node of this name exists already ({sources[node.name]})"
            yield Fault(source=node.source, path="metadata.name", value=node.name, rule=rule)
        sources.setdefault(node.name, node.source)


def _duplicate_pods(pods: Iterable[PodEntry]) -> Iterator[Fault]:
    names = PodNames()
    for pod in sorted((pod for pod in pods if not pod.is_from_template), key=_arrival):
        other_source = names.add(f"{pod.namespace}/{pod.name}", pod.arrives_s, pod.runs_s, pod.source)
        if other_source is not None:
            yield duplicate_name_fault(pod.source, "metadata.name", pod.name, other_source)


def _arrival_and_daemon_first(pod: FleetPod) -> tuple[float, bool]:
    """Sort key: time of arrival, then pods of DaemonSets first."""
    return pod.arrives_s, not pod.required_node


def _arrival(pod: FleetPod | PodEntry) -> float:
    return pod.arrives_s
