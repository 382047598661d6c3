"""Reads nodes and pods of a fleet from manifests, or from the output of `kubectl get nodes,pods -A -o json`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.controllers import POD_KIND
from nodewright.documents.formats.decode import checked, decode, taint_faults
from nodewright.documents.formats.documents import (
    OTHER_DOCUMENTS,
    TEMPLATE_FILES,
    InputFile,
    is_object_like,
    is_template,
    parse_documents,
    starts_as_json,
)
from nodewright.documents.formats.json_documents import NoteProgress, noted
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.object_location import ObjectLocation, listed_items, with_type_meta
from nodewright.documents.profiles.planned_nodes import PlannedNodes
from nodewright.engine.admission.admission_plugins import with_canonical_quantities, with_uid
from nodewright.engine.core.disruption.pod_eviction import EvictionFacts
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.fleet.load.assembled_nodes import NodeEntry, missing_node_facts, node_images, node_release
from nodewright.fleet.load.gpu_annotations import GPUAnnotations
from nodewright.fleet.load.pod_controllers import (
    DAEMON_SET,
    PodController,
    PodControllers,
    PodSelectors,
    controller_of,
    eviction_facts,
    mapping,
    started_s,
)
from nodewright.fleet.workload import BARE_POD, FleetPod
from nodewright.model.errors import ENCODING_ERRORS, Fault, InputError
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.node_profile import cpu_decider, is_nri_policy, nri_decider
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.duration import Duration, DurationError

ARRIVAL_ANNOTATION, RUNTIME_ANNOTATION = "nodewright.dev/arrives", "nodewright.dev/runs"
"""Annotations of a pod: when it arrives and how long it runs, as `90s` or `1h30m`."""
_NODE = ("v1", "Node")
_MIN_SIZE = 1024


class PodEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or several equal pods, as read from a file."""

    template: int
    """Index of its template."""
    name: str
    namespace: str
    arrives_s: float = 0
    runs_s: float | None = None
    node: str = ""
    started_s: float | None = None
    required_node: str = ""
    """The only node for it; empty: any."""
    has_controller: bool = False
    owner: PodController | None = None
    """Its controller, from its manifest or its owner references."""
    eviction: EvictionFacts = BARE_POD
    is_from_template: bool = False
    """Whether it is created from its controller's template; otherwise it is a pod in a file."""
    count: int | None = 1
    """Number of pods; None: one on each matching node."""
    source: str = ""


@dataclass(slots=True)
class FleetObjects:
    """The objects read so far."""

    namespace: str = "default"
    max_bytes: int = MAX_YAML_BYTES
    """Maximum size of a YAML document."""
    nodes: list[NodeEntry] = field(default_factory=list)
    pods: list[PodEntry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ended_pods: int = 0
    """Number of terminated pods, which are ignored."""
    resizing_pods: int = 0
    """Number of pods whose resize is not complete; their specs count, not what they have."""
    unknown_fields: set[str] = field(default_factory=set)
    """Unknown fields of pods from a cluster."""
    pod_selectors: PodSelectors = field(default_factory=PodSelectors)
    controllers: PodControllers = field(default_factory=PodControllers)
    planned: PlannedNodes = field(default_factory=PlannedNodes)
    nri_policies: list[Mapping[str, Any]] = field(default_factory=list)
    """The objects that configure NRI resource policies."""
    note_progress: NoteProgress | None = None
    manifests: ManifestLoader = field(init=False)
    _by_content: dict[bytes, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.manifests = ManifestLoader(self.namespace, self.max_bytes, applies_quotas=False)

    def kinds(self) -> Counter[str]:
        """How many objects of each kind there are, those included that are ignored."""
        workloads = self.manifests.workloads
        return Counter(
            {
                **self.manifests.skipped,
                **Counter(workloads[pod.template].workload.kind for pod in self.pods),
                **({"Node": len(self.nodes)} if self.nodes else {}),
            }
        )

    def read_file(self, file: InputFile) -> None:
        """Reads the objects of a file, and collects their faults."""
        try:
            self._add_file(file)
        except InputError as error:
            if not (file.is_found and is_template(file.content)):
                self.faults.extend(error.faults)
            else:
                self.manifests.count_skipped(TEMPLATE_FILES)

    def _add_file(self, file: InputFile) -> None:
        max_bytes = max(self.max_bytes, len(file.content))
        rows = [] if starts_as_json(file.content) else file.content.split(b"\n")
        self._check_sizes(rows, file.source)
        documents = parse_documents(file.content, file.source, max_bytes=max_bytes, item_by_item=True)
        for document in documents:
            if file.is_found and not is_object_like(document.value):
                self.manifests.count_skipped(OTHER_DOCUMENTS)
                continue
            location = ObjectLocation(file.source, file.content, document.number, len(documents))
            # The line after the mark, where the object begins.
            line = document.line + bool(rows and _is_mark(rows[document.line - 1]))
            self._add_value(document.value, location, f"{file.source}:{line}")

    def _check_sizes(self, rows: Sequence[bytes], source: str) -> None:
        """Errors: InputError for a document of more bytes than the limit."""
        for is_mark, group in groupby(rows, _is_mark):
            lengths = list(map(len, group))
            size = 0 if is_mark else sum(lengths) + len(lengths)
            if size > self.max_bytes:
                rule = f"{size} bytes of YAML exceed the limit of {self.max_bytes} (JSON may be larger)"
                raise InputError([Fault(rule=rule, source=source)])

    def _add_value(self, value: Any, location: ObjectLocation, source: str) -> None:
        items = listed_items(value) if isinstance(value, dict) else None
        if items is not None:
            for index, item in enumerate(noted(items, location.source, self.note_progress)):
                inner = replace(location, prefix=f"{location.prefix}.items[{index}]".lstrip("."))
                typed = with_type_meta(item, str(value.get("apiVersion")), str(value["kind"]))
                self._add_value(typed, inner, f"{location.source}, {inner.prefix}")
            return
        kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
        if kind == _NODE:
            self._add_node(value, location, source)
        elif kind == POD_KIND:
            self._add_pod_object(value, location, source)
        elif isinstance(value, dict) and is_nri_policy(value):
            self.nri_policies.append(value)
        elif not (isinstance(value, dict) and self.planned.add(value, location, source)):
            self._add_other(value, location, source)

    def _add_other(self, value: Any, location: ObjectLocation, source: str) -> None:
        """Adds controllers and selectors; other objects are ignored."""
        faults = (
            self.pod_selectors.add_object(value, self.namespace, location)
            if isinstance(value, dict)
            else None
        )
        if faults is not None:
            self.faults.extend(faults)
            return
        count_before = len(self.manifests.workloads)
        self.manifests.add_object(value, location)
        for number in range(count_before, len(self.manifests.workloads)):
            created = self.manifests.workloads[number].workload
            replicas = 1 if created.replicas is None else created.replicas
            pod = self._pod(value, number, source, name=created.pod.metadata.name)
            self.pods.append(
                replace(
                    pod,
                    namespace=created.namespace,
                    has_controller=True,
                    owner=(owner := self.controllers.add_controller(value, self.namespace)),
                    eviction=EvictionFacts(
                        owner_kind=owner.kind, owner_name=owner.name, is_daemon=owner.kind == DAEMON_SET[1]
                    ),
                    is_from_template=True,
                    node="" if created.kind == "DaemonSet" else created.pod.spec.node_name,
                    count=None if created.kind == "DaemonSet" else replicas,
                )
            )

    def _add_pod_object(self, value: dict[str, Any], location: ObjectLocation, source: str) -> None:
        if mapping(value.get("status")).get("phase") in ("Succeeded", "Failed"):
            self.ended_pods += 1
            meta = mapping(value.get("metadata"))
            owner = controller_of(meta, str(meta.get("namespace") or self.namespace))
            # Pods of a Job that have terminated count as completed; other controllers have replaced theirs.
            if owner is not None and owner.kind == "Job":
                self.controllers.add_pod(owner, mapping(meta.get("labels")), "")
            return
        self.resizing_pods += _is_resizing(mapping(value.get("status")))
        key = _content(value)
        if key not in self._by_content:
            self._by_content[key] = self._template(value, location)
        template = self._by_content[key]
        if template is not None:
            self._add_pod(self._pod(value, template, source, location=location), value)

    def _add_pod(self, pod: PodEntry, value: Mapping[str, Any]) -> None:
        self.pods.append(pod)
        if pod.owner is not None:
            self.controllers.add_pod(
                pod.owner, mapping(mapping(value.get("metadata")).get("labels")), pod.node
            )

    def _template(self, value: dict[str, Any], location: ObjectLocation) -> int | None:
        """The index of the pod's new template; None: it has faults."""
        meta = value.get("metadata")
        if isinstance(meta, dict) and meta.get("uid"):  # an API server has accepted it
            value = self._without_unknown(value)
        count_before = len(self.manifests.workloads)
        self.manifests.add_object(value, location)
        return count_before if len(self.manifests.workloads) > count_before else None

    def _without_unknown(self, value: dict[str, Any]) -> dict[str, Any]:
        """The pod without status, and without unknown fields of later releases."""
        meta, spec = _without(value["metadata"], "managedFields"), _without(value.get("spec"), "nodeName")
        meta["annotations"] = _without(meta.get("annotations"), CONFIG_MIRROR)  # mirror pods have a node
        pod_fields = {**_without(value, "status"), "metadata": meta, "spec": spec}
        check = checked(pod_fields, "Pod")
        if not check.located_faults:
            return pod_fields
        unknown = {fault.path for fault in check.faults if fault.rule.startswith("unknown field")}
        self.unknown_fields |= unknown
        return pod_fields if len(unknown) < len(check.faults) else check.valid_part()

    def _pod(
        self,
        value: dict[str, Any],
        template: int,
        source: str,
        *,
        name: str = "",
        location: ObjectLocation | None = None,
    ) -> PodEntry:
        meta, spec = mapping(value.get("metadata")), mapping(value.get("spec"))
        annotations, namespace = (
            mapping(meta.get("annotations")),
            str(meta.get("namespace") or self.namespace),
        )
        owner = controller_of(meta, namespace)
        return PodEntry(
            template=template,
            name=name or str(meta.get("name") or f"{meta.get('generateName')}{len(self.pods)}"),
            namespace=namespace,
            arrives_s=self._seconds(annotations, ARRIVAL_ANNOTATION, source, location) or 0,
            runs_s=self._seconds(annotations, RUNTIME_ANNOTATION, source, location),
            node=str(spec.get("nodeName") or ""),
            started_s=started_s(mapping(value.get("status")).get("startTime")),
            has_controller=owner is not None,
            owner=owner,
            eviction=eviction_facts(value),
            source=source,
        )

    def _seconds(
        self, annotations: Mapping[str, Any], key: str, source: str, location: ObjectLocation | None
    ) -> float | None:
        text = annotations.get(key)
        if text is None:
            return None
        try:
            span = Duration.parse(str(text)).nanoseconds
        except DurationError as error:
            rule, span = str(error), 0
        else:
            rule = "must be 0 or more" if span < 0 else ""
        if rule:
            fault = Fault(path=f"metadata.annotations[{key}]", value=text, rule=rule)
            located = replace(fault, source=source) if location is None else location.locate(fault)
            self.faults.append(located)
        return span / 10**9

    def add_waiting(self) -> None:
        """Adds the pods of what waited for other objects, once all are read."""
        for value, location in self.manifests.taken_waiting():
            self._add_other(value, location, location.name)

    def completed_nodes(self) -> list[NodeEntry]:
        """The nodes with those that other objects would create, and with what decides about CPUs, once all are read."""
        for planned in self.planned.nodes([node.name for node in self.nodes]):
            count = len(self.nodes)
            self._add_node(planned.node, planned.location, planned.source)
            self.nodes[count:] = [
                replace(node, shape=planned.shape, configuration=planned.configuration)
                for node in self.nodes[count:]
            ]
        self.faults += self.planned.faults
        for index, node in enumerate(self.nodes):
            if decider := nri_decider(self.nri_policies, node.name, node.labels):
                self.nodes[index] = replace(node, cpu_decider=decider)
        return self.nodes

    def _add_node(self, value: dict[str, Any], location: ObjectLocation, source: str) -> None:
        status, meta, spec = (value.get(name) for name in ("status", "metadata", "spec"))
        relevant: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {name: item for name, item in mapping(meta).items() if name in ("name", "labels")},
            "spec": {
                name: item for name, item in mapping(spec).items() if name in ("taints", "unschedulable")
            },
            "status": {
                name: item for name, item in mapping(status).items() if name in ("capacity", "allocatable")
            },
        }
        location = replace(location, label=f"Node {mapping(meta).get('name')}")
        faults = checked(relevant, "FleetNode").faults or list(
            missing_node_facts(relevant["status"], mapping(meta))
        )
        if faults:
            self.faults.extend(location.locate_all(faults))
            return
        node = decode(relevant, APINode)
        if faults := list(taint_faults(node.spec.taints)):
            self.faults.extend(location.locate_all(faults))
            return
        allocatable = node.status.allocatable
        self.nodes.append(
            NodeEntry(
                name=node.metadata.name,
                capacity={**allocatable, **node.status.capacity},
                allocatable=allocatable,
                labels=dict(node.metadata.labels),
                taints=node.spec.taints,
                unschedulable=node.spec.unschedulable,
                images=node_images(mapping(status)),
                release=node_release(mapping(status)),
                cpu_decider=cpu_decider({**node.metadata.labels, **_texts(mapping(meta).get("annotations"))}),
                source=source,
            )
        )


def _texts(values: Any) -> dict[str, str]:
    return {name: str(value) for name, value in mapping(values).items()}


def fleet_pods(objects: FleetObjects, pods: Iterable[PodEntry], gpus: GPUAnnotations) -> Iterator[FleetPod]:
    """The pods, as many of each entry as its count; pods of one template share one Pod object.

    Entries with one pod per node are left out.
    """
    workloads = objects.manifests.result().workloads
    created: dict[int, tuple[Pod, int]] = {}
    selectors: dict[tuple[int, str, PodController | None], Mapping[str, Any] | None] = {}
    for entry in pods:
        if entry.template not in created:
            pod, milli = gpus.with_gpu_requests(workloads[entry.template].pod, entry.source)
            # Its node is that of the entry; a replacement may have another one.
            pod = replace(pod, spec=replace(pod.spec, node_name=""))
            created[entry.template] = with_defaults(with_uid(with_canonical_quantities(pod))), milli
        pod, milli = created[entry.template]
        key = (entry.template, entry.namespace, entry.owner)
        if key not in selectors:
            selector = objects.controllers.selector_of(entry.owner)
            selectors[key] = objects.pod_selectors.default_selector(
                entry.namespace, pod.metadata.labels, selector
            )
        for name in copy_names(entry.name, entry.count or 0):
            yield FleetPod(
                name=name,
                namespace=entry.namespace,
                pod=pod,
                arrives_s=entry.arrives_s,
                runs_s=entry.runs_s,
                node=entry.node,
                started_s=entry.started_s if entry.node else None,
                required_node=entry.required_node,
                gpu_milli=milli,
                has_controller=entry.has_controller,
                selector=selectors[key],
                eviction=entry.eviction,
                volumes=workloads[entry.template].volumes,
                source=entry.source,
            )


def _without(value: Any, name: str) -> dict[str, Any]:
    return {key: item for key, item in mapping(value).items() if key != name}


def _is_resizing(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions")
    kinds = {str(mapping(each).get("type")) for each in (conditions if isinstance(conditions, list) else ())}
    return bool(status.get("resize")) or not kinds.isdisjoint(("PodResizePending", "PodResizeInProgress"))


def _is_mark(row: bytes) -> bool:
    """Whether a line separates documents, and holds no part of one."""
    return row.startswith(b"---") and not row[3:].split(b"#")[0].strip(b" \t")


def _content(value: dict[str, Any]) -> bytes:
    """A text that is equal for pods with equal templates."""
    meta = mapping(value.get("metadata"))
    annotations = {
        key: text
        for key, text in mapping(meta.get("annotations")).items()
        if key not in (ARRIVAL_ANNOTATION, RUNTIME_ANNOTATION)
    }
    spec = {
        key: item
        for key, item in mapping(value.get("spec")).items()
        if key != "nodeName" or not isinstance(item, str)
    }
    if meta.get("uid"):  # an API server has accepted the rest
        content: list[Any] = [meta.get("namespace"), meta.get("labels"), annotations, spec]
    else:
        content = [_without(meta, "name"), annotations, spec, _without(_without(value, "metadata"), "spec")]
        content[0].pop("annotations", None)
    try:
        return msgspec.json.encode(content, order="sorted")
    except ENCODING_ERRORS:
        return json.dumps(content, sort_keys=True, default=str).encode()


class PodNames:
    """The names of pods that may still exist, by their times. To be used in the order of arrival.

    A name may be reused after the end of its pod, as in traces over days. Memory grows with the pods that exist at
    one time, not with all pods.
    """

    def __init__(self) -> None:
        self._sources: dict[str, tuple[float, str]] = {}
        """By name: when it becomes free, and where the pod is defined."""
        self._prune_at = _MIN_SIZE

    def add(self, name: str, arrives_s: float, runs_s: float | None, source: str) -> str | None:
        """Adds the name; None, or where the pod is defined that has this name already."""
        current = self._sources.get(name)
        if current is not None and current[0] > arrives_s:
            return current[1]
        self._sources[name] = (inf if runs_s is None else arrives_s + runs_s, source)
        if len(self._sources) > self._prune_at:
            self._sources = {key: until for key, until in self._sources.items() if until[0] > arrives_s}
            self._prune_at = 2 * len(self._sources) + _MIN_SIZE
        return None

    def checked_unique(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods, unchanged.

        Errors: InputError at the first pod with a duplicate name.
        """
        add = self.add
        for pod in pods:
            other_source = add(f"{pod.namespace}/{pod.name}", pod.arrives_s, pod.runs_s, pod.source)
            if other_source is not None:
                raise InputError([duplicate_name_fault(pod.source, "name", pod.name, other_source)])
            yield pod


def duplicate_name_fault(source: str, path: str, name: str, other_source: str) -> Fault:
    """The fault of a pod with the name of another one, which is defined at ``other_source``."""
    return Fault(
        source=source, path=path, value=name, rule=f"a pod of this name exists already ({other_source})"
    )


def copy_names(name: str, count: int) -> Iterator[str]:
    """The names of so many copies of a pod, numbered from that of the first.

    >>> list(copy_names("web-3", 2)), list(copy_names("web", 1))
    (['web-3', 'web-4'], ['web'])
    """
    if count == 1:
        yield name
        return
    stem, _, first = name.rpartition("-")
    for number in range(count):
        yield f"{stem}-{int(first) + number}"
