"""NodeExport: what a node really holds at a time, as one document that programs compare by its digests.

`nodewright export` and the agent serve it; the scheduler extender reads it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode, without_nulls
from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import object_document, profile_document
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import API_VERSION, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.kubernetes.secret_fields import without_secret_fields
from nodewright.model.values.instant import Instant

KIND, PROFILE_KIND = "NodeExport", "NodeProfile"
MAX_EXPORT_BYTES = 32 << 20
_DIGEST = "sha256:"


class SourceState(StrEnum):
    """Whether a source of an export could be read."""

    READ = "read"
    """Its content is part of the profile."""
    ABSENT = "absent"
    """It does not exist, as the state file of a manager that has no policy."""
    FAILED = "failed"
    """It exists and cannot be read; its last content, or an assumption, is part of the profile."""


class ExportSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A source of an export.

    Units: milliseconds.
    """

    name: str
    """E.g. `cpu_manager_state`, `/configz`, `PodResources`, `pods`."""
    state: SourceState
    age_milliseconds: int | None = None
    """How old its content may be at the observed time: 0 if it is watched. Absent: it has never been read."""
    error: str = ""
    """Why it could not be read."""
    assumed: str = ""
    """What is assumed instead."""


class NodeExport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a node, and what identifies it."""

    api_version: Literal["nodewright.dev/v1alpha1"] = "nodewright.dev/v1alpha1"
    kind: Literal["NodeExport"] = "NodeExport"
    node_name: str
    generation: int
    """Grows with each change of the profile or its sources; restarts of the exporter do not reset it."""
    digest: str
    """SHA-256 of the profile, as `profile_digest` gives it."""
    shape_digest: str
    """SHA-256 of what decides: equal for nodes that are alike apart from names, uids and times."""
    observed_time: Instant
    """When the profile was last compared with its sources, by the clock of the node."""
    sources: tuple[ExportSource, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was left out, as sentences."""
    assumed: tuple[str, ...] = ()
    """What is not known and only assumed, as sentences."""
    profile: NodeProfile


class _ExportedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a profile, and what an export has of it."""

    original: Pod
    document: dict[str, Any]
    """Without fields that may hold secrets."""
    pod: Pod
    shape: dict[str, Any]

    @classmethod
    def of(cls, pod: Pod) -> "_ExportedPod":
        document = plain_value(without_secret_fields(object_document(pod)))
        return cls(original=pod, document=document, pod=decode(document, Pod), shape=pod_shape(document))


class ExportedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as exports have it: without fields of pods that may hold secrets and without the times of its sources."""

    profile: NodeProfile
    content: bytes
    """The profile as canonical JSON."""
    digest: str
    shape_digest: str
    pods: dict[str, _ExportedPod]
    """The pods by uid, to be used again for the next profile."""

    @classmethod
    def of(cls, profile: NodeProfile, before: "ExportedProfile | None" = None) -> "ExportedProfile":
        """The profile with its digests; ``before`` spares the work for pods that have not changed."""
        known = before.pods if before is not None else {}
        pods = {}
        for pod in profile.spec.pods:
            exported = known.get(pod.uid)
            is_known = exported is not None and exported.original == pod
            pods[pod.uid] = exported if exported is not None and is_known else _ExportedPod.of(pod)
        spec = replace(profile.spec, sources=(), pods=())
        document: dict[str, Any] = without_secret_fields(profile_document(replace(profile, spec=spec)))
        without_pods = decode(document, NodeProfile)
        if profile.spec.pods:
            document["spec"]["pods"] = [pods[pod.uid].document for pod in profile.spec.pods]
        shape = shape_document(document, [pods[pod.uid].shape for pod in profile.spec.pods])
        content = msgspec.json.encode(document, order="sorted")
        exported_pods = tuple(pods[pod.uid].pod for pod in profile.spec.pods)
        return cls(
            profile=replace(without_pods, spec=replace(without_pods.spec, pods=exported_pods)),
            content=content,
            digest=bytes_digest(content),
            shape_digest=profile_digest(shape),
            pods=pods,
        )


def node_export(
    profile: NodeProfile | ExportedProfile,
    *,
    generation: int,
    observed_time: Instant,
    sources: Sequence[ExportSource] = (),
    warnings: Sequence[str] = (),
    assumed: Sequence[str] = (),
) -> NodeExport:
    """The export of a node with this profile."""
    exported = profile if isinstance(profile, ExportedProfile) else ExportedProfile.of(profile)
    return NodeExport(
        node_name=exported.profile.metadata.name,
        generation=generation,
        digest=exported.digest,
        shape_digest=exported.shape_digest,
        observed_time=observed_time,
        sources=tuple(sources),
        warnings=tuple(warnings),
        assumed=tuple(assumed),
        profile=exported.profile,
    )


def encode_node_export(export: NodeExport, profile: bytes = b"") -> bytes:
    """The export as JSON, which `read_node_export` reads back; ``profile`` is its profile, if that is encoded already."""
    content = profile or ExportedProfile.of(export.profile).content
    document = object_document(replace(export, profile=NodeProfile()))
    return msgspec.json.encode(
        {
            "apiVersion": export.api_version,
            "kind": export.kind,
            **document,
            "profile": msgspec.Raw(content),
        }
    )


def profile_digest(document: dict[str, Any]) -> str:
    """`sha256:` and the digest of the canonical JSON: sorted keys, no blanks, UTF-8.

    >>> profile_digest({"kind": "NodeProfile"})
    'sha256:f401248707280ad5f8d75cdb86472532013a4916e4a2e88db2c4dc1820bfd293'
    """
    return bytes_digest(msgspec.json.encode(document, order="sorted"))


def bytes_digest(content: bytes) -> str:
    """The digest of a profile that is written as canonical JSON, as exporters write it."""
    return _DIGEST + hashlib.sha256(content).hexdigest()


def read_node_export(content: bytes, source: str = "export") -> NodeExport:
    """The export that the bytes describe.

    Errors: InputError with all faults: a document that is no NodeExport, digests that are not those of its profile, a
        profile that cannot be, as one whose CPUs two containers hold or that holds more memory than a NUMA node has.
    """
    if len(content) > MAX_EXPORT_BYTES:
        raise InputError([Fault(rule=f"larger than {MAX_EXPORT_BYTES} bytes", source=source)])
    documents = parse_documents(content, source)
    value: Any = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"expected one document with apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=source)])
    # Programs write exports on one line: to find the position of a fault would take longer than it helps.
    location = ObjectLocation(source, b"", document=1, documents=1)
    document: dict[str, Any] = value.get("profile") or {}
    if faults := [*checked({**value, "profile": None}, KIND).faults, *_frame_faults(value)]:
        raise InputError(location.locate_all(faults))
    from nodewright.documents.profiles.node_profiles import profile_from_document  # noqa: PLC0415 - 3 MiB that writers do not need

    profile = profile_from_document(document, replace(location, prefix="profile"))
    export = replace(decode({**value, "profile": {}}, NodeExport), profile=profile)
    if faults := [*_export_faults(export, document), *memory_faults(profile.spec)]:
        raise InputError(location.locate_all(faults))
    return export


def _frame_faults(value: dict[str, Any]) -> Iterator[Fault]:
    """Faults of the document that the types of its fields do not show."""
    profile = value.get("profile")
    if not isinstance(profile, dict):
        yield Fault(path="profile", error="Required value", rule="a NodeProfile")
    elif (profile.get("apiVersion"), profile.get("kind")) != (API_VERSION, PROFILE_KIND):
        yield Fault(
            path="profile.kind", value=profile.get("kind"), rule=f"must be {API_VERSION} {PROFILE_KIND}"
        )
    sources = value.get("sources")
    for index, source in enumerate(sources if isinstance(sources, list) else ()):
        state = source.get("state") if isinstance(source, dict) else None
        if isinstance(state, str) and state not in set(SourceState):
            rule = f"must be one of {', '.join(SourceState)}"
            yield Fault(path=f"sources[{index}].state", value=state, rule=rule)


def _export_faults(export: NodeExport, document: dict[str, Any]) -> Iterator[Fault]:
    """Faults of the fields beside the profile, and digests that are not those of the profile."""
    if not export.node_name or export.node_name != export.profile.metadata.name:
        rule = f"must be the name of the profile, {export.profile.metadata.name!r}"
        yield Fault(path="nodeName", value=export.node_name, rule=rule)
    if export.generation < 0:
        rule = "must be greater than or equal to 0"
        yield Fault(path="generation", value=export.generation, rule=rule)
    digests = (
        ("digest", export.digest, profile_digest(document)),
        ("shapeDigest", export.shape_digest, profile_digest(shape_document(document))),
    )
    for path, given, computed in digests:
        if given != computed:
            yield Fault(path=path, value=given, rule=f"the profile has {computed}")
    for index, source in enumerate(export.sources):
        if (source.age_milliseconds or 0) < 0:
            rule = "must be greater than or equal to 0"
            path = f"sources[{index}].ageMilliseconds"
            yield Fault(path=path, value=source.age_milliseconds, rule=rule)


def memory_faults(spec: NodeProfileSpec) -> Iterator[Fault]:
    """Memory beyond what the NUMA nodes have; init containers and pods pass theirs on, so the largest holder counts."""
    sizes = {(numa.node_id, MEMORY): numa.memory for numa in spec.machine_info.topology}
    held: Counter[tuple[str, int, str]] = Counter()
    for allocation in spec.allocations or ():
        of_container: Counter[tuple[str, int, str]] = Counter()
        for block in allocation.memory:
            if len(block.numa_nodes) == 1:
                of_container[allocation.pod, block.numa_nodes[0], block.type] += block.size
        held |= of_container
    sums: Counter[tuple[int, str]] = Counter()
    for (_, numa, kind), size in held.items():
        sums[numa, kind] += size
    for (numa, kind), size in sorted(sums.items()):
        largest = sizes.get((numa, kind))
        if largest is not None and size > largest:
            rule = f"pods hold {size} bytes of {kind} on NUMA node {numa}, which has {largest}"
            yield Fault(path="profile.spec.allocations", rule=rule)


_HOSTNAME = "kubernetes.io/hostname"
_IDENTITY_ANNOTATIONS = tuple(f"kubernetes.io/config.{name}" for name in ("hash", "seen", "mirror"))
_IDLE_POD_FIELDS = frozenset(
    {
        # Where the pod runs, and what its containers see there.
        *("nodeName", "hostname", "subdomain", "hostAliases", "dnsPolicy", "dnsConfig", "serviceAccountName"),
        *(
            "image",
            "imagePullPolicy",
            "env",
            "envFrom",
            "workingDir",
            "volumes",
            "volumeMounts",
            "volumeDevices",
        ),
        *("terminationMessagePath", "terminationMessagePolicy", "imagePullSecrets", "securityContext"),
        # What decided when it was scheduled.
        *("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "schedulerName"),
        # Identities and times of its containers.
        *("containerID", "imageID", "startedAt", "finishedAt", "startTime", "restartCount", "lastState"),
        *("podIP", "hostIP", "conditions", "reason", "message"),
    }
)


def shape_document(
    document: Mapping[str, Any], pod_shapes: Sequence[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The document of a NodeProfile without names, uids and times; ``pod_shapes`` are those of its pods, if known.

    Allocations name pods by their position, and devices by their rank among those of the resource: device managers
    choose by the order of ids. Not equal are nodes with other labels, except the host name. So the shape does not decide
    about a pod that selects its node by name; and which of several equal pods is preempted is not part of the answer.
    """
    if pod_shapes is None:
        document = without_nulls(document)
    spec = document.get("spec", {})
    pods = spec.get("pods", ())
    positions = {name: str(index) for index, pod in enumerate(pods) for name in _references(pod)}
    ranks = _device_ranks(spec)
    name = document.get("metadata", {}).get("name", "")
    shape = {key: value for key, value in spec.items() if key not in _REPLACED}
    labels = spec.get("labels", {})
    shape |= {
        "labels": {key: value for key, value in labels.items() if key != _HOSTNAME or value != name},
        "taints": [
            {key: item for key, item in taint.items() if key != "timeAdded"}
            for taint in spec.get("taints", ())
        ],
        "pods": [pod_shape(pod) for pod in pods] if pod_shapes is None else pod_shapes,
        "allocations": [
            _allocation_shape(entry, positions, ranks) for entry in spec.get("allocations") or ()
        ],
        "isReplayed": spec.get("allocations") is None,
        "notJudged": [_unknown_shape(entry, positions) for entry in spec.get("notJudged", ())],
        **_device_shapes(spec, ranks),
    }
    return {"spec": shape}


def _unknown_shape(entry: Mapping[str, Any], positions: Mapping[str, str]) -> dict[str, Any]:
    return {"part": entry["part"], "names": [positions.get(name, name) for name in entry.get("names", ())]}


def _device_shapes(spec: Mapping[str, Any], ranks: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    devices, gone = spec.get("devices", {}), spec.get("goneDevices", {})
    return {
        "devices": {
            resource: [{**device, "id": ranks[resource][device["id"]]} for device in listed]
            for resource, listed in devices.items()
        },
        "goneDevices": {
            resource: [ranks[resource][name] for name in names] for resource, names in gone.items()
        },
    }


_REPLACED = frozenset(
    {"labels", "taints", "pods", "allocations", "devices", "goneDevices", "notJudged", "sources"}
)


def _references(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """How allocations name the pod."""
    meta = pod.get("metadata", {})
    return f"{meta.get('namespace') or 'default'}/{meta.get('name', '')}", meta.get("uid", "")


def _device_ranks(spec: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The ranks of the devices' ids, by resource and id, in digits that sort as the ids do."""
    ids: dict[str, set[str]] = {}
    for resource, devices in spec.get("devices", {}).items():
        ids.setdefault(resource, set()).update(device["id"] for device in devices)
    for resource, names in spec.get("goneDevices", {}).items():
        ids.setdefault(resource, set()).update(names)
    return {
        resource: {name: f"{rank:06}" for rank, name in enumerate(sorted(names))}
        for resource, names in ids.items()
    }


def _allocation_shape(
    entry: Mapping[str, Any], positions: Mapping[str, str], ranks: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    devices = {
        resource: [ranks.get(resource, {}).get(name, name) for name in names]
        for resource, names in entry.get("devices", {}).items()
    }
    return {**entry, "pod": positions.get(entry["pod"], entry["pod"]), "devices": devices}


def pod_shape(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What matters of a pod to the next one: it holds and requests resources, and may be preempted."""
    meta = pod.get("metadata", {})
    return {
        # The kubelet's own annotations tell static pods from others; their values are hashes and times.
        "annotations": {
            key: "" if key in _IDENTITY_ANNOTATIONS else text
            for key, text in meta.get("annotations", {}).items()
        },
        "isTerminating": bool(meta.get("deletionTimestamp")),
        "spec": _deciding(pod.get("spec", {})),
        "status": _deciding(pod.get("status", {})),
    }


def _deciding(value: Any) -> Any:
    """The value without the fields that do not decide about other pods."""
    if isinstance(value, dict):
        return {key: _deciding(item) for key, item in value.items() if key not in _IDLE_POD_FIELDS}
    if isinstance(value, list | tuple):
        return [_deciding(item) for item in value]
    return value
