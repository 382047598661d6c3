"""Files that pods come from: what a manifest gives when it is a static pod's, or an ordinary pod's, and what is wrong."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.core.arrival import arrived
from nodewright.core.validation import metadata_violations
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import Container, Pod, PodSpec, RuntimeClass, Toleration
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Loading
from nodewright.world.places import Place
from nodewright.world.schema import checked

MAX_BYTES = 10 * 2**20
HASH, SOURCE = "kubernetes.io/config.hash", "kubernetes.io/config.source"

_FNV_OFFSET, _FNV_PRIME, _128_BITS = 0x6C62272E07BB014262B821756295C58D, 0x1000000000000000000013B, 2**128 - 1
_CONFIG_MAP, _SECRET, _POD = ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Pod")

_UID = re.compile(r"[A-Za-z0-9][-\w.]{0,127}", re.ASCII)

_CORE_KINDS = frozenset(
    [
        "Binding",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
    ]
)

T = TypeVar("T", ConfigMap, Secret)


class Origin(StrEnum):
    """Where manifests come from, as the kubelet's annotation has it."""

    FILE = "file"
    HTTP = "http"
    API = "api"
    """Not static: the pods are as if an API server had brought them."""


class ManifestPlace(NamedTuple):
    """Which file or URL it is, and whose node."""

    source: str
    origin: Origin
    node_name: str


@dataclass(slots=True)
class FromFile:
    """What one file or answer gives."""

    pods: list[Pod] = field(default_factory=list)
    config_maps: list[ConfigMap] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    runtimes: list[RuntimeClass] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """Objects that nobody here does anything with, as `Kind namespace/name`."""


def read_manifest(content: bytes, place: ManifestPlace) -> FromFile:
    """The pods of a manifest as their node gets them, and the ConfigMaps, Secrets and RuntimeClasses beside them.

    Follows: v1.36, pkg/kubelet/config/common.go, tryDecodeSinglePod and applyDefaults.
    Departs: all documents and lists of a file count, not the first document alone; static pods may take variables
        and files from ConfigMaps and Secrets, since these are files, too.
    Errors:  InputError with all faults of the file.
    """
    found, faults = FromFile(), list[Fault]()
    documents = parse_documents(content, place.source, max_bytes=MAX_BYTES)
    for document in documents:
        where = Place(place.source, content, document.number, documents[-1].number)
        for value, inner in _objects(document.value, where):
            faults += _take(value, inner, place, found)
    if faults:
        raise InputError(faults)
    return found


def _objects(value: Any, where: Place) -> Iterator[tuple[Any, Place]]:
    """The object itself, or the members of a list."""
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list) or not str(value.get("kind")).endswith("List"):
        yield value, where
        return
    for index, item in enumerate(items):
        if isinstance(item, dict) and value.get("kind") != "List":
            kind = str(value["kind"]).removesuffix("List")
            item = {"apiVersion": value.get("apiVersion"), "kind": kind, **item}  # noqa: PLW2901 - as its list says
        yield item, Place(where.source, where.content, where.document, where.documents, f"items[{index}]")


def _take(value: Any, where: Place, place: ManifestPlace, found: FromFile) -> Iterable[Fault]:
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else ("", "")
    if kind == _CONFIG_MAP:
        return _take_config(value, where, ConfigMap, found.config_maps)
    if kind == _SECRET:
        return _take_config(value, where, Secret, found.secrets)
    loading = Loading("default")
    loading.take_object(value, where)
    if loading.faults:
        return loading.faults
    if loading.runtimes:
        found.runtimes += loading.runtimes
        return ()
    if kind[0] == "v1" and kind[1] not in _CORE_KINDS:
        return (where.of(Fault(path="kind", value=kind[1], rule='no such kind in version "v1"')),)
    if kind != _POD:
        found.passed_over.append(_label(value))
        return ()
    (workload,) = loading.workloads
    if not (value.get("metadata") or {}).get("name"):
        return (
            where.of(Fault(rule="name is needed for the pod", path="metadata.name", error="Required value")),
        )
    if not is_safe_uid(workload.pod.uid):
        rule = "a uid is made of letters, digits, '-', '_' and '.', and begins with a letter or a digit"
        return (where.of(Fault(path="metadata.uid", value=workload.pod.uid, rule=rule)),)
    refused = _needs_cluster(workload.pod) if place.origin is not Origin.API else ""
    if refused:
        return (where.of(Fault(rule=f"static pods may not reference {refused}")),)
    found.pods.append(placed_pod(workload.pod, value, place))
    return ()


def _take_config(value: dict[str, Any], where: Place, kind: type[T], kept: list[T]) -> Iterable[Fault]:
    check = checked(value, kind.__name__)
    if check.faults:
        return where.all_of(check.faults)
    try:
        one = decode(value, kind)
    except msgspec.ValidationError as error:
        return (where.of(Fault(rule=f"{error}; it is base64")),)
    meta = replace(one.metadata, namespace=one.metadata.namespace or "default")
    violations = [
        Fault(path=each.path, error=str(each.type), value=each.value, rule=each.rule)
        for each in metadata_violations(meta)
    ]
    kept.append(replace(one, metadata=meta))
    return where.all_of(violations)


def _label(value: Mapping[str, Any]) -> str:
    meta = value.get("metadata") or {}
    return f"{value.get('kind')} {meta.get('namespace') or 'default'}/{meta.get('name') or ''}"


# ---------------------------------------------------------------- pods


def is_safe_uid(uid: str) -> bool:
    """Whether the uid can be the name of a directory, as it has to be here.

    >>> is_safe_uid("6f1c-4"), is_safe_uid("../etc")
    (True, False)
    """
    return _UID.fullmatch(uid) is not None


def placed_pod(pod: Pod, document: Mapping[str, Any], place: ManifestPlace) -> Pod:
    """The pod with what the kubelet gives it: uid, name, node, annotations, and the API's defaults.

    Follows: v1.36, pkg/kubelet/config/common.go, applyDefaults; pkg/kubelet/config/config.go, updatePodsFunc.
    Departs: the uid is a hash of the manifest, node and place, as the kubelet's, but not the same number: that one is
        of the kubelet's own memory. No time of first sight is noted: it would be another one at each look.
    """
    uid = (document.get("metadata") or {}).get("uid") or _uid(document, place)
    meta = replace(pod.metadata, uid=str(uid))
    tolerations = pod.spec.tolerations
    if place.origin is not Origin.API:
        notes = {**meta.annotations, HASH: str(uid), SOURCE: str(place.origin)}
        meta = replace(meta, name=f"{meta.name}-{place.node_name.lower()}", annotations=notes)
    if place.origin is Origin.FILE:
        tolerations = _tolerant(tolerations)
    spec = replace(pod.spec, node_name=place.node_name, tolerations=tolerations)
    return with_usual(arrived(replace(pod, metadata=meta, spec=spec)).pod)


def _uid(document: Mapping[str, Any], place: ManifestPlace) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    if place.origin is Origin.HTTP:
        text += f"url:{place.source}"
    else:
        text += f"host:{place.node_name}file:{place.source}"
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & _128_BITS
    return f"{value:032x}"


def _tolerant(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Nothing that happens to the node ends a static pod."""
    every = Toleration(operator="Exists", effect="NoExecute")
    others = tuple(
        one for one in tolerations if (one.key, one.operator, one.effect) != ("", "Exists", "NoExecute")
    )
    return (*others, every)


_PATIENCE_S = 30


def with_usual(pod: Pod) -> Pod:
    """The pod with the API's defaults for what an agent looks at.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec and SetDefaults_Container.
    """
    spec = pod.spec
    period = spec.termination_grace_period_seconds
    changed = replace(
        spec,
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        termination_grace_period_seconds=_PATIENCE_S if period is None else period,
        containers=tuple(map(_usual_container, spec.containers)),
        init_containers=tuple(map(_usual_container, spec.init_containers)),
    )
    return replace(pod, spec=changed)


def _usual_container(one: Container) -> Container:
    tag = one.image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    is_moving = "@" not in one.image and tag in ("", "latest")
    return replace(
        one,
        image_pull_policy=one.image_pull_policy or ("Always" if is_moving else "IfNotPresent"),
        termination_message_path=one.termination_message_path or "/dev/termination-log",
        termination_message_policy=one.termination_message_policy or "File",
    )


_OF_CLUSTER = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED_OF_CLUSTER = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def _needs_cluster(pod: Pod) -> str:
    """What a static pod refers to that only an API server has; empty: nothing.

    Follows: v1.36, pkg/api/pod/util.go, HasAPIObjectReference.
    """
    if pod.spec.service_account_name:
        return "serviceaccounts"
    if pod.spec.resource_claims:
        return "resourceclaims"
    return next(_of_cluster(pod.spec), "")


def _of_cluster(spec: PodSpec) -> Iterator[str]:
    for volume in spec.volumes:
        yield from (what for name, what in _OF_CLUSTER.items() if volume.get(name) is not None)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (what for name, what in _PROJECTED_OF_CLUSTER.items() if source.get(name) is not None)
