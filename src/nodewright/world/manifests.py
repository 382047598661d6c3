"""Manifests: the pods that files describe, alone or inside what makes pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import msgspec

from nodewright.model.objects import ObjectMeta, OwnerReference, Pod, PodSpec, Toleration
from nodewright.values.quantity import QuantityError
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, read_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Something that makes pods, and the (first) pod that it makes.

    `replicas` is how many it wants; None where that is not its own to say (DaemonSet, PodTemplate).
    """

    source: str
    api_version: str
    kind: str
    name: str
    namespace: str
    replicas: int | None
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the files held."""

    workloads: tuple[Workload, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many objects there were of each kind that makes no pods or is not known."""
    warnings: tuple[str, ...] = ()


def load_workloads(filenames: Sequence[str], namespace: str = "default") -> Loaded:
    """The workloads in the files, directories or standard input (`-`) named.

    `namespace` is for objects that name none.
    Errors: InputError with the faults of all documents at once.
    """
    loading = _Loading(namespace)
    for file in read_files(filenames):
        loading.take_file(file)
    return loading.result()


def workloads_from(content: bytes, source: str, namespace: str = "default") -> Loaded:
    """The workloads in the bytes of one file; else as load_workloads."""
    loading = _Loading(namespace)
    loading.take_file(File(source, content))
    return loading.result()


class _Template(NamedTuple):
    """Where a kind keeps its pod template and how many pods it wants."""

    path: tuple[str, ...]
    replicas: str | None
    pod_owner: tuple[str, str] | None = None
    """The kind between it and the pod, where there is one."""


_TEMPLATES = {
    ("apps/v1", "Deployment"): _Template(("spec", "template"), "replicas", ("apps/v1", "ReplicaSet")),
    ("apps/v1", "StatefulSet"): _Template(("spec", "template"), "replicas"),
    ("apps/v1", "ReplicaSet"): _Template(("spec", "template"), "replicas"),
    ("apps/v1", "DaemonSet"): _Template(("spec", "template"), None),
    ("batch/v1", "Job"): _Template(("spec", "template"), "parallelism"),
    ("batch/v1", "CronJob"): _Template(
        ("spec", "jobTemplate", "spec", "template"), "parallelism", ("batch/v1", "Job")
    ),
    ("v1", "ReplicationController"): _Template(("spec", "template"), "replicas"),
    ("v1", "PodTemplate"): _Template(("template",), None),
}
_POD = ("v1", "Pod")
_GROUPS = {kind: version.rpartition("/")[0] for version, kind in (*_TEMPLATES, _POD)}
_SERVED = {kind: version for version, kind in (*_TEMPLATES, _POD)}
_FORMER_GROUP = "extensions"

# What the DaemonSet controller adds to every pod, so that its pods survive what the node reports.
_DAEMON_TAINTS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TAINT = ("network-unavailable", "NoSchedule")


@dataclass(slots=True)
class _Loading:
    """What was found so far."""

    namespace: str
    workloads: list[Workload] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    uids: dict[str, int] = field(default_factory=dict)

    def result(self) -> Loaded:
        if self.faults:
            raise InputError(self.faults)
        return Loaded(
            workloads=tuple(self.workloads),
            skipped=MappingProxyType(dict(sorted(self.skipped.items()))),
            warnings=tuple(self.warnings),
        )

    def take_file(self, file: File) -> None:
        try:
            documents = parse_documents(file.content, file.source)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        for document in documents:
            source = file.source if len(documents) == 1 else f"{file.source}, document {document.number}"
            self._take_object(document.value, source)

    def _take_object(self, value: Any, source: str) -> None:
        if not isinstance(value, dict):
            self.faults.append(Fault(rule="an object is a mapping with apiVersion and kind", source=source))
            return
        version, kind = value.get("apiVersion"), value.get("kind")
        missing = [
            Fault(rule=f"Object '{word}' is missing", path=name, source=source)
            for name, word, given in (("apiVersion", "apiVersion", version), ("kind", "Kind", kind))
            if not isinstance(given, str) or not given
        ]
        if missing or not isinstance(version, str) or not isinstance(kind, str):
            self.faults.extend(missing)
            return
        if kind.endswith("List") and isinstance(value.get("items"), list):
            for number, item in enumerate(value["items"]):
                self._take_object(_typed(item, version, kind), f"{source}, items[{number}]")
            return
        group = version.rpartition("/")[0]
        if kind not in _SERVED or group not in (_GROUPS[kind], _FORMER_GROUP):
            name = kind if kind not in _SERVED or not group else f"{kind}.{group}"
            self.skipped[name] = self.skipped.get(name, 0) + 1
        elif version != _SERVED[kind]:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {_SERVED[kind]}'
            self.faults.append(Fault(rule=rule, path="apiVersion", source=source))
        else:
            self._take_workload(value, source)

    def _take_workload(self, value: dict[str, Any], source: str) -> None:
        version, kind = value["apiVersion"], value["kind"]
        try:
            if (version, kind) == _POD:
                workload = self._pod(decode(value, Pod), source)
            else:
                workload = self._templated(value, source)
        except (msgspec.ValidationError, QuantityError) as error:
            self.faults.append(Fault(rule=str(error), source=f"{source}, {kind}"))
            return
        self.workloads.append(workload)

    def _pod(self, pod: Pod, source: str) -> Workload:
        meta = pod.metadata
        meta = msgspec.structs.replace(meta, namespace=meta.namespace or self.namespace)
        if not meta.name and meta.generate_name:
            meta = msgspec.structs.replace(meta, name=f"{meta.generate_name}0")
        if not meta.uid:
            meta = msgspec.structs.replace(meta, uid=self._uid("Pod", meta.namespace, meta.name))
        pod = msgspec.structs.replace(pod, metadata=meta)
        return Workload(
            source=source,
            api_version="v1",
            kind="Pod",
            name=meta.name,
            namespace=meta.namespace,
            replicas=1,
            pod=pod,
        )

    def _templated(self, value: dict[str, Any], source: str) -> Workload:
        version, kind = value["apiVersion"], value["kind"]
        shape = _TEMPLATES[version, kind]
        own = decode(value.get("metadata") or {}, ObjectMeta)
        namespace = own.namespace or self.namespace
        name = own.name or f"{own.generate_name}0"
        *parents, last = shape.path
        parent = value
        for step in parents:
            parent = parent.get(step) or {}
        template = decode(parent.get(last) or {}, Pod)
        owner_version, owner_kind = shape.pod_owner or (version, kind)
        meta = ObjectMeta(
            name=f"{name}-0",
            generate_name=f"{name}-",
            namespace=namespace,
            uid=self._uid(kind, namespace, name),
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(
                OwnerReference(
                    api_version=owner_version,
                    kind=owner_kind,
                    name=name,
                    uid=_uuid(f"{owner_kind}/{namespace}/{name}"),
                    controller=True,
                ),
            ),
        )
        spec = _daemon(template.spec) if kind == "DaemonSet" else template.spec
        replicas = None
        if shape.replicas is not None:
            wanted = parent.get(shape.replicas)
            replicas = wanted if isinstance(wanted, int) else 1
        return Workload(
            source=source,
            api_version=version,
            kind=kind,
            name=name,
            namespace=namespace,
            replicas=replicas,
            pod=Pod(metadata=meta, spec=spec),
        )

    def _uid(self, kind: str, namespace: str, name: str) -> str:
        """A uid for the pod of an object: the same for the same files, whatever else is in them."""
        text = f"{kind}/{namespace}/{name}/pod"
        count = self.uids[text] = self.uids.get(text, 0) + 1
        return _uuid(text if count == 1 else f"{text}/{count}")


def _uuid(text: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"nodewright.dev/{text}"))


def _typed(item: Any, version: str, kind: str) -> Any:
    """The item with the kind that its list gives it, as in a PodList whose items say nothing."""
    if isinstance(item, dict) and kind != "List" and not item.get("kind"):
        return {"apiVersion": version, "kind": kind.removesuffix("List"), **item}
    return item


def _daemon(spec: PodSpec) -> PodSpec:
    """The spec with the tolerations that the DaemonSet controller gives.

    Follows: v1.36, pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
    """
    taints = (*_DAEMON_TAINTS, _HOST_NETWORK_TAINT) if spec.host_network else _DAEMON_TAINTS
    added = tuple(
        Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
        for name, effect in taints
    )
    return msgspec.structs.replace(spec, tolerations=spec.tolerations + added)
