"""Manifests: the pods that files describe, alone or inside what makes pods."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, assert_never

import msgspec

from nodewright.core.arrival import (
    HIGHEST_USER_PRIORITY,
    SYSTEM_CLASSES,
    SYSTEM_PREFIX,
    PriorityDiffers,
    Remark,
    RuntimeClassDiffers,
    UnknownPriorityClass,
    UnknownRuntimeClass,
    arrived,
)
from nodewright.core.validation import ErrorType, Violation, metadata_violations, violations
from nodewright.model.api_request import APIObject
from nodewright.model.objects import ObjectMeta, Pod, PodSpec, PriorityClass, RuntimeClass
from nodewright.world.controllers import strategy_violations
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, named_files, read_file
from nodewright.world.others import Others, Taken
from nodewright.world.places import Place
from nodewright.world.schema import checked
from nodewright.world.templates import POD, TEMPLATES, pod_of, uid_of
from nodewright.world.yaml import MAX_YAML_BYTES


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


def load_workloads(
    filenames: Sequence[str],
    namespace: str = "default",
    *,
    recursive: bool = False,
    max_bytes: int = MAX_YAML_BYTES,
) -> Loaded:
    """The workloads in the files, directories or standard input (`-`) named.

    `namespace` is for objects that name none; `recursive` goes down into directories.
    Units:  max_bytes in bytes of YAML a file; JSON may be larger.
    Errors: InputError with the faults of all documents at once.
    """
    loading = Loading(namespace, max_bytes)
    take_files(loading, filenames, recursive=recursive)
    return loading.result()


def take_files(loading: "Loading", filenames: Sequence[str], *, recursive: bool = False) -> None:
    """Take in the files named; their faults are kept."""
    for path in named_files(filenames, recursive=recursive):
        try:
            file = read_file(path, max_bytes=loading.max_bytes)
        except InputError as error:
            loading.faults.extend(error.faults)
        else:
            loading.take_file(file)


def workloads_from(content: bytes, source: str, namespace: str = "default") -> Loaded:
    """The workloads in the bytes of one file; else as load_workloads."""
    loading = Loading(namespace)
    loading.take_file(File(source, content))
    return loading.result()


_PRIORITY_CLASS = ("scheduling.k8s.io/v1", "PriorityClass")
_RUNTIME_CLASS = ("node.k8s.io/v1", "RuntimeClass")
_SERVED = {kind: version for version, kind in (*TEMPLATES, POD, _PRIORITY_CLASS, _RUNTIME_CLASS)}
_FORMER_GROUP = "extensions"
_MISSED = (ErrorType.REQUIRED, ErrorType.FORBIDDEN)  # "HugePages require cpu or memory"


@dataclass(slots=True)
class Loading:
    """What was found so far."""

    namespace: str
    max_bytes: int = MAX_YAML_BYTES
    workloads: list[Workload] = field(default_factory=list)
    classes: list[PriorityClass] = field(default_factory=list)
    runtimes: list[RuntimeClass] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    others: Others | None = None
    """Where all objects are gathered; None: what makes no pods is passed over."""

    def result(self) -> Loaded:
        """All of it; or the faults, if there were any."""
        if self.faults:
            raise InputError(self.faults)
        workloads = tuple(map(self._arrived, self.workloads))
        return Loaded(
            workloads=workloads,
            skipped=MappingProxyType(dict(sorted(self.skipped.items()))),
            warnings=tuple(self.warnings),
        )

    def take_file(self, file: File) -> None:
        """Take in the documents of a file."""
        try:
            documents = parse_documents(file.content, file.source, max_bytes=self.max_bytes)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        for document in documents:
            place = Place(file.source, file.content, document.number, documents[-1].number)
            self.take_object(document.value, place)

    def take_object(self, value: Any, place: Place) -> None:
        """Take in an object, or the members of a list."""
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
                self.take_object(_typed(item, version, kind), inner)
        else:
            self._take_kind(value, version, kind, place)

    def _take_kind(self, value: dict[str, Any], version: str, kind: str, place: Place) -> None:
        group = version.rpartition("/")[0]
        served = _SERVED.get(kind)
        if served is None or group not in (served.rpartition("/")[0], _FORMER_GROUP):
            if self.others is not None:
                place = replace(place, label=_label(value, kind, self.namespace))
                self._tell(place, self.others.take(value, place))
                return
            name = f"{kind}.{group}" if served is not None and group else kind
            self.skipped[name] = self.skipped.get(name, 0) + 1
            return
        place = replace(place, label=_label(value, kind, self.namespace))
        if version != served:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {served}'
            self.faults.append(place.of(Fault(rule=rule, path="apiVersion")))
            return
        check = checked(value, kind)
        sound = check.sound_part()
        found: list[Fault | Violation] = [*check.faults, *self._take_sound(sound, place)]
        if self.others is not None:
            found.extend(strategy_violations(sound))
        self._tell(place, found)

    def _tell(self, place: Place, found: Sequence[Fault | Violation]) -> None:
        """Note what is wrong with an object; not what may be there only because faults were left out."""
        faults = [one for one in found if isinstance(one, Fault)]
        rest = (one for one in found if isinstance(one, Violation) and not _follows(one, faults))
        self.faults.extend(place.all_of((*faults, *map(_fault, rest))))

    def _keep(self, value: dict[str, Any], place: Place, item: APIObject | int) -> None:
        if self.others is not None:
            self.others.taken.append(Taken(value, place, item))

    def _take_sound(self, value: dict[str, Any], place: Place) -> Iterable[Violation]:
        """Take in an object whose fields are as they should be; what the API server has against it."""
        version, kind = value["apiVersion"], value["kind"]
        if (version, kind) == _PRIORITY_CLASS:
            priority_class = decode(value, PriorityClass)
            self.classes.append(priority_class)
            self._keep(value, place, priority_class)
            return _class_violations(priority_class)
        if (version, kind) == _RUNTIME_CLASS:
            runtime_class = decode(value, RuntimeClass)
            self.runtimes.append(runtime_class)
            self._keep(value, place, runtime_class)
            return _runtime_violations(runtime_class)
        replicas: int | None = 1
        if (version, kind) == POD:
            pod = decode(value, Pod)
            found = violations(pod)
            pod = self._named(pod)
            meta = pod.metadata
        else:
            meta = decode(value.get("metadata") or {}, ObjectMeta)
            pod, replicas = pod_of(value, meta.namespace or self.namespace)
            prefix = TEMPLATES[version, kind].text
            inner = violations(pod, is_template=True)
            found = (
                *metadata_violations(meta),
                *(replace(one, path=f"{prefix}.{one.path}") for one in inner),
            )
        workload = Workload(
            source=place.name,
            api_version=version,
            kind=kind,
            name=meta.name or meta.generate_name,
            namespace=meta.namespace or self.namespace,
            replicas=replicas,
            pod=self._only(pod),
        )
        self._keep(value, place, len(self.workloads))
        self.workloads.append(workload)
        return found

    def _arrived(self, workload: Workload) -> Workload:
        """The workload with its pod as a node sees it: known only when all classes are."""
        after = arrived(workload.pod, self.classes, self.runtimes)
        self.warnings.extend(remark_text(after.pod, remark) for remark in after.remarks)
        return replace(workload, pod=after.pod)

    def _named(self, pod: Pod) -> Pod:
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
        # Who asks for all objects looks after those that are there twice.
        if count == 1 or self.others is not None:
            return pod
        self.warnings.append(f"{pod.full_name} is there more than once; each is taken for a pod of its own")
        meta = msgspec.structs.replace(pod.metadata, uid=uid_of(f"{uid}/{count}"))
        return msgspec.structs.replace(pod, metadata=meta)


def _class_violations(one: PriorityClass) -> Iterator[Violation]:
    """What the API server has against a PriorityClass.

    Follows: v1.36, pkg/apis/scheduling/validation/validation.go, ValidatePriorityClass.
    """
    yield from metadata_violations(one.metadata)
    if one.metadata.name.startswith(SYSTEM_PREFIX):
        if one.metadata.name not in SYSTEM_CLASSES:
            rule = "priority class names with 'system-' prefix are reserved for system use only"
            yield Violation("metadata.name", ErrorType.FORBIDDEN, rule=rule)
    elif one.value > HIGHEST_USER_PRIORITY:
        rule = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield Violation("value", ErrorType.FORBIDDEN, rule=rule)


def _runtime_violations(one: RuntimeClass) -> Iterator[Violation]:
    """What the API server has against a RuntimeClass.

    Follows: v1.36, pkg/apis/node/validation/validation.go, ValidateRuntimeClass.
    """
    yield from metadata_violations(one.metadata)
    scheduling = one.scheduling
    spec = PodSpec(
        overhead=one.overhead.pod_fixed,
        node_selector=scheduling.node_selector,
        tolerations=scheduling.tolerations,
    )
    for found in violations(Pod(spec=spec), is_template=True):
        for here, there in _OF_RUNTIME.items():
            if found.path.startswith(here):
                yield replace(found, path=there + found.path.removeprefix(here))


_OF_RUNTIME = {
    "spec.overhead.limits": "overhead.podFixed",
    "spec.nodeSelector": "scheduling.nodeSelector",
    "spec.tolerations": "scheduling.tolerations",
}


def _follows(violation: Violation, faults: Sequence[Fault]) -> bool:
    """Whether the violation may be there only because the faults were left out.

    That is so for what is said of the same field or within it, and where something is missed around it.
    """
    path = violation.path
    around = (f"{path}.", f"{path}[") if violation.type in _MISSED else ()
    return any(
        fault.path == path or fault.path.startswith(around) or path.startswith(f"{fault.path}.")
        for fault in faults
    )


def _fault(violation: Violation) -> Fault:
    error, value = str(violation.type), violation.value
    if isinstance(value, tuple | dict):  # as Go prints it; a list that is not there is null
        text = json.dumps(value or None, ensure_ascii=False, separators=(",", ":"))
        error, value = f"{error}: {text}", None
    return Fault(path=violation.path, error=error, value=value, rule=violation.rule)


def remark_text(pod: Pod, remark: Remark) -> str:
    """What is remarkable about a pod's arrival, as a warning."""
    match remark:
        case UnknownPriorityClass(name=name, priority=priority):
            return f'{pod.full_name}: no PriorityClass with name "{name}" is known; priority {priority} is assumed'
        case PriorityDiffers(written=written, computed=computed):
            return (
                f"{pod.full_name}: spec.priority {written} is kept, though the API server would refuse it: "
                f"it computes {computed}"
            )
        case UnknownRuntimeClass(name=name):
            return (
                f'{pod.full_name}: no RuntimeClass with name "{name}" is known; no overhead of it is counted'
            )
        case RuntimeClassDiffers(name=name, field=name_of_field):
            return (
                f"{pod.full_name}: spec.{name_of_field} is kept, though the API server would refuse it: "
                f'RuntimeClass "{name}" has another'
            )
        case _:
            assert_never(remark)


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
