"""Nodes and pods of a fleet from manifests, or from what `kubectl get nodes,pods -A -o json` prints."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodewright.core.arrival import identified, stored
from nodewright.core.requests import with_defaults
from nodewright.model.fleet import FleetPod
from nodewright.model.objects import Node, Pod
from nodewright.values.duration import Duration, DurationError
from nodewright.world.decode import decode
from nodewright.world.documents import decode_text, parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File
from nodewright.world.fleet.gpus import GPUs
from nodewright.world.fleet.nodes import ReadNode
from nodewright.world.fleet.owners import Owner, Owners, owner_of
from nodewright.world.fleet.pieces import STAND_IN, Piece, pieces
from nodewright.world.fleet.selecting import Selecting
from nodewright.world.manifests import Loading
from nodewright.world.places import Place
from nodewright.world.schema import checked
from nodewright.world.templates import POD
from nodewright.world.yaml import MAX_YAML_BYTES

ARRIVES, RUNS = "nodewright.dev/arrives", "nodewright.dev/runs"
"""Annotations of a pod: when it arrives and how long it runs, as `90s` or `1h30m`."""
_NODE = ("v1", "Node")
_NS_PER_S = 10**9
_UNKNOWN = "unknown field"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPod:
    """A pod, or several that are alike, as far as a file tells."""

    template: int
    """Which of the templates it is made of."""
    name: str
    namespace: str
    arrives_s: float = 0
    runs_s: float | None = None
    node: str = ""
    only_on: str = ""
    """The node that it is meant for."""
    controlled: bool = False
    owner: Owner | None = None
    """Its controller: what it was made from, or what it says itself."""
    is_made: bool = False
    """Whether it is made here out of its controller; else it is a pod of the files."""
    count: int | None = 1
    """How many; None: one on each node that suits."""
    place: str = ""


@dataclass(slots=True)
class Objects:
    """What was found so far."""

    namespace: str = "default"
    max_bytes: int = MAX_YAML_BYTES
    """The most YAML that is taken in one document."""
    nodes: list[ReadNode] = field(default_factory=list)
    pods: list[ReadPod] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ended: int = 0
    """Pods that have ended, which are left out."""
    unknown: set[str] = field(default_factory=set)
    """Fields of pods out of a cluster that we do not know."""
    selecting: Selecting = field(default_factory=Selecting)
    owners: Owners = field(default_factory=Owners)
    loading: Loading = field(init=False)
    _by_content: dict[str, int | None] = field(default_factory=dict)
    _by_value: dict[int, "tuple[Any, int | ReadNode]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loading = Loading(self.namespace, self.max_bytes)

    def take(self, file: File) -> None:
        """Take in the objects of a file; their faults are kept."""
        try:
            self._take(file)
        except InputError as error:
            self.faults.extend(error.faults)

    def _take(self, file: File) -> None:
        text = decode_text(file.content, file.source)
        cut = None if text.lstrip()[:1] == "{" else pieces(text, file.source, self.max_bytes)
        if cut is None:
            documents = parse_documents(
                file.content, file.source, max_bytes=max(self.max_bytes, len(file.content))
            )
            for document in documents:
                place = Place(file.source, file.content, document.number, len(documents))
                self._take_value(document.value, place, f"{file.source}:{document.line}")
            return
        for piece in cut:
            self._take_piece(piece, file)

    def _take_piece(self, piece: Piece, file: File) -> None:
        at = f"{file.source}:{piece.line}"
        if piece.name and self._take_known(piece, at):
            return
        value = _named(piece.value, piece.name) if piece.name else piece.value
        # The document alone, with as many lines before it as the text has.
        content = b"\n" * (piece.line - 1) + piece.text.encode()
        before = len(self.faults), len(self.loading.faults)
        self._take_value(value, Place(file.source, content, 1, 1), at)
        if piece.name and before == (len(self.faults), len(self.loading.faults)):
            self._keep(piece)

    def _take_known(self, piece: Piece, at: str) -> bool:
        """Take in an object that differs from one before in its name alone; False if it is none."""
        known = self._by_value.get(id(piece.value))
        if known is None:
            return False
        if isinstance(known[1], ReadNode):
            node = known[1]
            labels = {key: value.replace(STAND_IN, piece.name) for key, value in node.labels.items()}
            self.nodes.append(replace(node, name=piece.name, labels=labels, place=at))
        else:
            self._add_pod(self._pod(piece.value, known[1], at, name=piece.name), piece.value)
        return True

    def _keep(self, piece: Piece) -> None:
        """Remember what a piece came to, where its name stands nowhere but where names may differ."""
        value = piece.value
        kind = (value.get("apiVersion"), value.get("kind"))
        if kind == _NODE:
            elsewhere = {**value, "metadata": {**value["metadata"], "labels": None, "name": None}}
            if STAND_IN not in json.dumps(elsewhere):
                labels = (value["metadata"].get("labels") or {}).items()
                with_name = {key: str(text) for key, text in labels}
                self._by_value[id(value)] = value, replace(self.nodes[-1], labels=with_name)
        elif kind == POD and STAND_IN not in json.dumps(
            {**value, "metadata": {**value["metadata"], "name": None}}
        ):
            self._by_value[id(value)] = value, self.pods[-1].template

    def _take_value(self, value: Any, place: Place, at: str) -> None:
        if (
            isinstance(value, dict)
            and str(value.get("kind")).endswith("List")
            and isinstance(value.get("items"), list)
        ):
            for index, item in enumerate(value["items"]):
                inner = replace(place, prefix=f"{place.prefix}.items[{index}]".lstrip("."))
                typed = _typed(item, str(value.get("apiVersion")), str(value["kind"]))
                self._take_value(typed, inner, f"{place.source}, {inner.prefix}")
            return
        kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
        if kind == _NODE:
            self._take_node(value, place, at)
        elif kind == POD:
            self._take_pod(value, place, at)
        else:
            self._take_other(value, place, at)

    def _take_other(self, value: Any, place: Place, at: str) -> None:
        """What makes pods, and what is passed over."""
        faults = self.selecting.take(value, self.namespace, place) if isinstance(value, dict) else None
        if faults is not None:
            self.faults.extend(faults)
            return
        before = len(self.loading.workloads)
        self.loading.take_object(value, place)
        for number in range(before, len(self.loading.workloads)):
            made = self.loading.workloads[number]
            pod = self._pod(value, number, at, name=made.pod.metadata.name)
            self.pods.append(
                replace(
                    pod,
                    namespace=made.namespace,
                    controlled=True,
                    owner=self.owners.take_controller(value, self.namespace),
                    is_made=True,
                    count=None if made.kind == "DaemonSet" else 1 if made.replicas is None else made.replicas,
                )
            )

    def _take_pod(self, value: dict[str, Any], place: Place, at: str) -> None:
        if _part(value.get("status")).get("phase") in ("Succeeded", "Failed"):
            self.ended += 1
            meta = _part(value.get("metadata"))
            owner = owner_of(meta, str(meta.get("namespace") or self.namespace))
            # What a Job has done is done; whatever else makes pods has made others in their place.
            if owner is not None and owner.kind == "Job":
                self.owners.take_pod(owner, _part(meta.get("labels")), "")
            return
        key = _content(value)
        if key not in self._by_content:
            self._by_content[key] = self._template(value, place)
        template = self._by_content[key]
        if template is not None:
            self._add_pod(self._pod(value, template, at, place=place), value)

    def _add_pod(self, pod: ReadPod, value: Mapping[str, Any]) -> None:
        self.pods.append(pod)
        if pod.owner is not None:
            self.owners.take_pod(pod.owner, _part(_part(value.get("metadata")).get("labels")), pod.node)

    def _template(self, value: dict[str, Any], place: Place) -> int | None:
        """The number of the template that the pod makes; None: it has faults."""
        meta = value.get("metadata")
        if isinstance(meta, dict) and meta.get("uid"):  # an API server has taken it already
            value = self._without_unknown(value)
        before = len(self.loading.workloads)
        self.loading.take_object(value, place)
        return before if len(self.loading.workloads) > before else None

    def _without_unknown(self, value: dict[str, Any]) -> dict[str, Any]:
        """The pod as it is to be, without fields that a later release may have given it."""
        meta = {name: one for name, one in value["metadata"].items() if name != "managedFields"}
        spec = {name: one for name, one in _part(value.get("spec")).items() if name != "nodeName"}
        lasting = {
            **{name: one for name, one in value.items() if name != "status"},
            "metadata": meta,
            "spec": spec,
        }
        check = checked(lasting, "Pod")
        if not check.found:
            return lasting
        unknown = {fault.path for fault in check.faults if fault.rule.startswith(_UNKNOWN)}
        self.unknown |= unknown
        return lasting if len(unknown) < len(check.faults) else check.sound_part()

    def _pod(
        self, value: dict[str, Any], template: int, at: str, *, name: str = "", place: Place | None = None
    ) -> ReadPod:
        meta, spec = _part(value.get("metadata")), _part(value.get("spec"))
        notes, namespace = _part(meta.get("annotations")), str(meta.get("namespace") or self.namespace)
        owner = owner_of(meta, namespace)
        return ReadPod(
            template=template,
            name=name or str(meta.get("name") or f"{meta.get('generateName')}{len(self.pods)}"),
            namespace=namespace,
            arrives_s=self._seconds(notes, ARRIVES, at, place) or 0,
            runs_s=self._seconds(notes, RUNS, at, place),
            node=str(spec.get("nodeName") or ""),
            controlled=owner is not None,
            owner=owner,
            place=at,
        )

    def _seconds(self, notes: Mapping[str, Any], key: str, at: str, place: Place | None) -> float | None:
        text = notes.get(key)
        if text is None:
            return None
        try:
            span = Duration.parse(str(text)).nanoseconds
        except DurationError as error:
            rule, span = str(error), 0
        else:
            rule = "time does not run backwards" if span < 0 else ""
        if rule:
            fault = Fault(path=f"metadata.annotations[{key}]", value=text, rule=rule)
            self.faults.append(place.of(fault) if place is not None else replace(fault, source=at))
        return span / _NS_PER_S

    def _take_node(self, value: dict[str, Any], place: Place, at: str) -> None:
        status, meta, spec = (value.get(name) for name in ("status", "metadata", "spec"))
        kept: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {name: one for name, one in _part(meta).items() if name in ("name", "labels")},
            "spec": {name: one for name, one in _part(spec).items() if name in ("taints", "unschedulable")},
            "status": {
                name: one for name, one in _part(status).items() if name in ("capacity", "allocatable")
            },
        }
        place = replace(place, label=f"Node {_part(meta).get('name')}")
        found = checked(kept, "FleetNode").faults or list(_lacking(kept["status"], _part(meta)))
        if found:
            self.faults.extend(place.all_of(found))
            return
        node = decode(kept, Node)
        allocatable = node.status.allocatable
        self.nodes.append(
            ReadNode(
                name=node.metadata.name,
                capacity={**allocatable, **node.status.capacity},
                allocatable=allocatable,
                labels=dict(node.metadata.labels),
                taints=node.spec.taints,
                unschedulable=node.spec.unschedulable,
                place=at,
            )
        )


def fleet_pods(found: Objects, pods: Iterable[ReadPod], gpus: GPUs) -> Iterator[FleetPod]:
    """The pods, those of one template with one and the same Pod; each as often as it is wanted.

    What is to run once on each node is left out.
    """
    workloads = found.loading.result().workloads
    made: dict[int, tuple[Pod, int]] = {}
    selectors: dict[tuple[int, str, Owner | None], Mapping[str, Any] | None] = {}
    for one in pods:
        if one.template not in made:
            pod, milli = gpus.applied(workloads[one.template].pod, one.place)
            made[one.template] = with_defaults(identified(stored(pod))), milli
        pod, milli = made[one.template]
        key = (one.template, one.namespace, one.owner)
        if key not in selectors:
            own = found.owners.selector_of(one.owner)
            selectors[key] = found.selecting.selector_of(one.namespace, pod.metadata.labels, own)
        for name in _names(one):
            yield FleetPod(
                name=name,
                namespace=one.namespace,
                pod=pod,
                arrives_s=one.arrives_s,
                runs_s=one.runs_s,
                node=one.node,
                only_on=one.only_on,
                gpu_milli=milli,
                controlled=one.controlled,
                selector=selectors[key],
                place=one.place,
            )


def _names(pod: ReadPod) -> Iterator[str]:
    """The names of its copies: numbers go on from that of the first."""
    if pod.count == 1:
        yield pod.name
        return
    stem, _, first = pod.name.rpartition("-")
    for number in range(pod.count or 0):
        yield f"{stem}-{int(first) + number}"


def _lacking(status: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[Fault]:
    if not meta.get("name"):
        yield Fault(path="metadata.name", error="Required value", rule="")
    allocatable = status.get("allocatable")
    for name in ("cpu", "memory"):
        if not isinstance(allocatable, dict) or allocatable.get(name) is None:
            rule = "a node that says nothing of it cannot hold pods"
            yield Fault(path=f"status.allocatable[{name}]", error="Required value", rule=rule)


def _part(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _content(value: dict[str, Any]) -> str:
    """What pods that are alike have in common, as text."""
    meta = _part(value.get("metadata"))
    notes = {key: text for key, text in _part(meta.get("annotations")).items() if key not in (ARRIVES, RUNS)}
    spec = {key: item for key, item in _part(value.get("spec")).items() if key != "nodeName"}
    return json.dumps([meta.get("namespace"), meta.get("labels"), notes, spec], sort_keys=True, default=str)


def _named(value: Any, name: str) -> Any:
    """The value with the name in the place of its stand-in."""
    if isinstance(value, str):
        return value.replace(STAND_IN, name)
    if isinstance(value, dict):
        return {_named(key, name): _named(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, name) for item in value]
    return value


def _typed(item: Any, version: str, kind: str) -> Any:
    """The item with the kind that its list gives it, as in a PodList whose items say nothing."""
    if isinstance(item, dict) and kind != "List" and not item.get("kind"):
        return {"apiVersion": version, "kind": kind.removesuffix("List"), **item}
    return item
