"""Reads the manifests that an agent runs: pods with the kubelet's defaults, and the objects that they refer to."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode
from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.engine.admission.admission_plugins import defaulted_pod
from nodewright.engine.admission.validation.references import config_object_violations
from nodewright.engine.admission.validation.violation import metadata_violations
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.cluster_objects import ConfigMap, RuntimeClass, Secret
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, Toleration

MAX_MANIFEST_BYTES = 10 * 2**20
CONFIG_HASH_ANNOTATION, CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.hash", "kubernetes.io/config.source"

_FNV_OFFSET, _FNV_PRIME, _128_BITS = 0x6C62272E07BB014262B821756295C58D, 0x1000000000000000000013B, 2**128 - 1
_CONFIG_MAP, _SECRET, _POD = ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Pod")

_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.]{0,127}", re.ASCII)

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


class ManifestOrigin(StrEnum):
    """The source of a manifest, as in the kubelet's annotation `kubernetes.io/config.source`."""

    FILE = "file"
    HTTP = "http"
    API = "api"
    """Not static: the pods are as if they came from an API server."""


class ManifestSource(NamedTuple):
    """The file or URL of a manifest, and the node that reads it."""

    source: str
    origin: ManifestOrigin
    node_name: str


@dataclass(slots=True)
class ManifestContent:
    """The objects of one file or HTTP response."""

    pods: list[Pod] = field(default_factory=list)
    config_maps: list[ConfigMap] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    runtime_classes: list[RuntimeClass] = field(default_factory=list)
    ignored_objects: list[str] = field(default_factory=list)
    """Objects that the agent does not use, as `Kind namespace/name`."""


def read_manifest(content: bytes, source: ManifestSource) -> ManifestContent:
    """The pods of a manifest with the kubelet's defaults, and its ConfigMaps, Secrets and RuntimeClasses.

    Follows: v1.36, pkg/kubelet/config/common.go, tryDecodeSinglePod and applyDefaults.
    Departs: reads all documents and lists of a file, not only the first document; static pods may take variables
        and files from ConfigMaps and Secrets, because these are files, too.
    Errors:  InputError with all faults of the file.
    """
    manifest, faults = ManifestContent(), list[Fault]()
    documents = parse_documents(content, source.source, max_bytes=MAX_MANIFEST_BYTES)
    for document in documents:
        location = ObjectLocation(source.source, content, document.number, documents[-1].number)
        for value, object_location in _objects(document.value, location):
            faults += _add_object(value, object_location, source, manifest)
    if faults:
        raise InputError(faults)
    return manifest


def _objects(value: Any, location: ObjectLocation) -> Iterator[tuple[Any, ObjectLocation]]:
    """The object itself, or the items of a list."""
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list) or not str(value.get("kind")).endswith("List"):
        yield value, location
        return
    for index, item in enumerate(items):
        if isinstance(item, dict) and value.get("kind") != "List":
            kind = str(value["kind"]).removesuffix("List")
            item = {"apiVersion": value.get("apiVersion"), "kind": kind, **item}  # noqa: PLW2901 - the type that its list implies
        yield item, replace(location, prefix=f"items[{index}]")


def _add_object(
    value: Any, location: ObjectLocation, source: ManifestSource, manifest: ManifestContent
) -> Iterable[Fault]:
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else ("", "")
    if kind == _CONFIG_MAP:
        return _add_config_object(value, location, ConfigMap, manifest.config_maps)
    if kind == _SECRET:
        return _add_config_object(value, location, Secret, manifest.secrets)
    loading = ManifestLoader("default")
    loading.add_object(value, location)
    if loading.faults:
        return loading.faults
    if loading.runtime_classes:
        manifest.runtime_classes += loading.runtime_classes
        return ()
    if kind[0] == "v1" and kind[1] not in _CORE_KINDS:
        return (location.locate(Fault(path="kind", value=kind[1], rule='no such kind in version "v1"')),)
    if kind != _POD:
        manifest.ignored_objects.append(_label(value))
        return ()
    (read,) = loading.workloads
    workload = read.workload
    if not (value.get("metadata") or {}).get("name"):
        return (
            location.locate(
                Fault(rule="name is needed for the pod", path="metadata.name", error="Required value")
            ),
        )
    if not is_safe_uid(workload.pod.uid):
        rule = "a uid is made of letters, digits, '-' and '.', and begins with a letter or a digit"
        return (location.locate(Fault(path="metadata.uid", value=workload.pod.uid, rule=rule)),)
    api_reference = _api_object_reference(workload.pod) if source.origin is not ManifestOrigin.API else ""
    if api_reference:
        return (location.locate(Fault(rule=f"static pods may not reference {api_reference}")),)
    manifest.pods.append(with_kubelet_defaults(workload.pod, value, source))
    return ()


def _add_config_object(
    value: dict[str, Any], location: ObjectLocation, kind: type[T], objects: list[T]
) -> Iterable[Fault]:
    check = checked(value, kind.__name__)
    if check.faults:
        return location.locate_all(check.faults)
    try:
        config_object: T = decode(value, kind)
    except msgspec.ValidationError as error:
        return (location.locate(Fault(rule=f"{error}; it is base64")),)
    meta: ObjectMeta = replace(
        config_object.metadata, namespace=config_object.metadata.namespace or "default"
    )
    violations = [
        Fault(path=violation.path, error=str(violation.type), value=violation.value, rule=violation.rule)
        for violation in (*metadata_violations(meta), *config_object_violations(config_object))
    ]
    objects.append(replace(config_object, metadata=meta))
    return location.locate_all(violations)


def _label(value: Mapping[str, Any]) -> str:
    meta = value.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return f"{value.get('kind')} {meta.get('namespace') or 'default'}/{meta.get('name') or ''}"


# ---------------------------------------------------------------- pods


def is_safe_uid(uid: str) -> bool:
    """Whether the uid can be the name of a directory and of a cgroup, because the agent names the pod's after it.

    >>> is_safe_uid("6f1c-4"), is_safe_uid("../etc")
    (True, False)
    """
    return _UID.fullmatch(uid) is not None


def with_kubelet_defaults(pod: Pod, document: Mapping[str, Any], source: ManifestSource) -> Pod:
    """The pod with the uid, name, node, annotations and defaults that the kubelet sets.

    Follows: v1.36, pkg/kubelet/config/common.go, applyDefaults; pkg/kubelet/config/config.go, updatePodsFunc.
    Departs: the uid is a hash of manifest, node and source, as in the kubelet, but a different number, because the
        kubelet hashes its in-memory representation. There is no `config.seen` annotation: it would change at each read.
    """
    uid = (document.get("metadata") or {}).get("uid") or _uid(document, source)
    meta = replace(pod.metadata, uid=str(uid))
    tolerations = pod.spec.tolerations
    if source.origin is not ManifestOrigin.API:
        annotations = {
            **meta.annotations,
            CONFIG_HASH_ANNOTATION: str(uid),
            CONFIG_SOURCE_ANNOTATION: str(source.origin),
        }
        meta = replace(meta, name=f"{meta.name}-{source.node_name.lower()}", annotations=annotations)
    if source.origin is ManifestOrigin.FILE:
        tolerations = _with_no_execute_toleration(tolerations)
    spec = replace(pod.spec, node_name=source.node_name, tolerations=tolerations)
    return with_pod_defaults(defaulted_pod(replace(pod, metadata=meta, spec=spec)).pod)


def _uid(document: Mapping[str, Any], source: ManifestSource) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    if source.origin is ManifestOrigin.HTTP:
        text += f"url:{source.source}"
    else:
        text += f"host:{source.node_name}file:{source.source}"
    fnv_hash = _FNV_OFFSET
    for byte in text.encode():
        fnv_hash = (fnv_hash ^ byte) * _FNV_PRIME & _128_BITS
    return f"{fnv_hash:032x}"


def _with_no_execute_toleration(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """The tolerations with one for every NoExecute taint, so that no taint evicts a static pod."""
    no_execute = Toleration(operator="Exists", effect="NoExecute")
    others = tuple(
        toleration
        for toleration in tolerations
        if (toleration.key, toleration.operator, toleration.effect) != ("", "Exists", "NoExecute")
    )
    return (*others, no_execute)


_DEFAULT_GRACE_PERIOD_S = 30


def with_pod_defaults(pod: Pod) -> Pod:
    """The pod with the API's defaults for the fields that the agent reads.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec and SetDefaults_Container.
    """
    spec = pod.spec
    period = spec.termination_grace_period_seconds
    defaulted = replace(
        spec,
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        termination_grace_period_seconds=_DEFAULT_GRACE_PERIOD_S if period is None else period,
        containers=tuple(map(_with_container_defaults, spec.containers)),
        init_containers=tuple(map(_with_container_defaults, spec.init_containers)),
    )
    return replace(pod, spec=defaulted)


def _with_container_defaults(container: Container) -> Container:
    tag = container.image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    is_latest = "@" not in container.image and tag in ("", "latest")
    return replace(
        container,
        image_pull_policy=container.image_pull_policy or ("Always" if is_latest else "IfNotPresent"),
        termination_message_path=container.termination_message_path or "/dev/termination-log",
        termination_message_policy=container.termination_message_policy or "File",
    )


_API_VOLUMES = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_API_PROJECTIONS = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def _api_object_reference(pod: Pod) -> str:
    """The first API object that a static pod must not reference; empty if there is none.

    Follows: v1.36, pkg/api/pod/util.go, HasAPIObjectReference.
    """
    if pod.spec.service_account_name or pod.spec.service_account:
        return "serviceaccounts"
    if pod.spec.resource_claims:
        return "resourceclaims"
    return next(_volume_references(pod.spec), "")


def _volume_references(spec: PodSpec) -> Iterator[str]:
    for volume in spec.volumes:
        yield from (text for name, text in _API_VOLUMES.items() if volume.get(name) is not None)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (text for name, text in _API_PROJECTIONS.items() if source.get(name) is not None)
