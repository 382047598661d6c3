"""Manifests: the pods that files describe, alone or inside what makes pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from nodewright.model.objects import Pod
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, read_files
from nodewright.world.places import Place
from nodewright.world.schema import faults_in
from nodewright.world.templates import POD, TEMPLATES, pod_of, uid_of


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


_SERVED = {kind: version for version, kind in (*TEMPLATES, POD)}
_FORMER_GROUP = "extensions"


@dataclass(slots=True)
class _Loading:
    """What was found so far."""

    namespace: str
    workloads: list[Workload] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def result(self) -> Loaded:
        """All of it; or the faults, if there were any."""
        if self.faults:
            raise InputError(self.faults)
        return Loaded(
            workloads=tuple(self.workloads),
            skipped=MappingProxyType(dict(sorted(self.skipped.items()))),
            warnings=tuple(self.warnings),
        )

    def take_file(self, file: File) -> None:
        """Take in the documents of a file."""
        try:
            documents = parse_documents(file.content, file.source)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        for document in documents:
            place = Place(file.source, file.content, document.number, documents[-1].number)
            self._take_object(document.value, place)

    def _take_object(self, value: Any, place: Place) -> None:
        if not isinstance(value, dict):
            self.faults.append(place.of(Fault(rule="an object is a mapping with apiVersion and kind")))
            return
        version, kind = value.get("apiVersion"), value.get("kind")
        if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
            self.faults.extend(_nameless(version, kind, place))
        elif kind.endswith("List") and isinstance(value.get("items"), list):
            prefix = f"{place.prefix}." if place.prefix else ""
            for index, item in enumerate(value["items"]):
                inner = replace(place, prefix=f"{prefix}items[{index}]")
                self._take_object(_typed(item, version, kind), inner)
        else:
            self._take_kind(value, version, kind, place)

    def _take_kind(self, value: dict[str, Any], version: str, kind: str, place: Place) -> None:
        group = version.rpartition("/")[0]
        served = _SERVED.get(kind)
        if served is None or group not in (served.rpartition("/")[0], _FORMER_GROUP):
            name = f"{kind}.{group}" if served is not None and group else kind
            self.skipped[name] = self.skipped.get(name, 0) + 1
            return
        place = replace(place, label=_label(value, kind, self.namespace))
        if version != served:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {served}'
            self.faults.append(place.of(Fault(rule=rule, path="apiVersion")))
            return
        faults = faults_in(value, kind)
        if faults:
            self.faults.extend(map(place.of, faults))
            return
        self.workloads.append(self._workload(value, place))

    def _workload(self, value: dict[str, Any], place: Place) -> Workload:
        version, kind = value["apiVersion"], value["kind"]
        replicas: int | None = 1
        if (version, kind) == POD:
            pod = self._alone(decode(value, Pod))
            name, namespace = pod.metadata.name, pod.metadata.namespace
        else:
            own = value.get("metadata") or {}
            name = own.get("name") or own.get("generateName") or ""
            namespace = own.get("namespace") or self.namespace
            pod, replicas = pod_of(value, namespace)
        return Workload(
            source=place.name,
            api_version=version,
            kind=kind,
            name=name,
            namespace=namespace,
            replicas=replicas,
            pod=self._only(pod),
        )

    def _alone(self, pod: Pod) -> Pod:
        """The pod with what the API server gives it: namespace, name and uid."""
        meta = pod.metadata
        name = meta.name or (f"{meta.generate_name}0" if meta.generate_name else "")
        namespace = meta.namespace or self.namespace
        uid = meta.uid or uid_of(f"Pod/{namespace}/{name}")
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(meta, name=name, namespace=namespace, uid=uid)
        )

    def _only(self, pod: Pod) -> Pod:
        """The pod with a uid that no other has; there is a warning if it had."""
        uid = pod.uid
        count = self.seen[uid] = self.seen.get(uid, 0) + 1
        if count == 1:
            return pod
        self.warnings.append(f"{pod.full_name} is there more than once; each is taken for a pod of its own")
        meta = msgspec.structs.replace(pod.metadata, uid=uid_of(f"{uid}/{count}"))
        return msgspec.structs.replace(pod, metadata=meta)


def _nameless(version: Any, kind: Any, place: Place) -> list[Fault]:
    return [
        place.of(Fault(rule=f"Object '{word}' is missing", path=path))
        for path, word, given in (("apiVersion", "apiVersion", version), ("kind", "Kind", kind))
        if not isinstance(given, str) or not given
    ]


def _typed(item: Any, version: str, kind: str) -> Any:
    """The item with the kind that its list gives it, as in a PodList whose items say nothing."""
    if isinstance(item, dict) and kind != "List" and not item.get("kind"):
        return {"apiVersion": version, "kind": kind.removesuffix("List"), **item}
    return item


def _label(value: dict[str, Any], kind: str, namespace: str) -> str:
    """Kind, namespace and name, as far as the object has them."""
    meta = value.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    name = meta.get("name") or meta.get("generateName")
    return f"{kind} {meta.get('namespace') or namespace}/{name}" if name else kind
