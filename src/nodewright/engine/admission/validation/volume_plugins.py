"""Validation of volume sources that storage systems provide."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from nodewright.engine.admission.validation.claim_templates import claim_template_violations
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    each_invalid,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.patterns import lazy_pattern

Rule: TypeAlias = Callable[[Mapping[str, Any], str], Iterator[Violation]]
"""The violations in a source at a path."""

SECOND_SOURCE_PATHS = {"downwardAPI": "downwarAPI", "cephfs": "cephFS"}
"""How upstream writes some fields of a volume that has two sources."""

_PARTITION_RULE = "must be between 1 and 255, inclusive"
_LUN_RULE = "must be between 0 and 255, inclusive"
_ISCSI_NAMES = {
    "iqn": lazy_pattern(r"iqn\.[0-9]{4}-[0-9]{2}\.[a-zA-Z0-9.-]+:[^,;*&$|\s]+\Z"),
    "eui": lazy_pattern(r"\Aeui.[a-zA-Z0-9]{16}\Z"),
    "naa": lazy_pattern(r"\Anaa.[a-zA-Z0-9]{32}\Z"),
}
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ABSENT: tuple[object, ...] = (None, "", [])


def _needs(*fields: str) -> Rule:
    """The rule of a source with required fields only."""

    def rule(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
        return (required(f"{path}.{field}") for field in fields if source.get(field) in _ABSENT)

    return rule


def _disk(field: str, path_name: str = "") -> Rule:
    """The rule of a disk with partitions."""

    def rule(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
        disk_path = f"{path.rpartition('.')[0]}.{path_name}" if path_name else path
        if not source.get(field):
            yield required(f"{disk_path}.{field}")
        if not 0 <= (source.get("partition") or 0) <= 255:
            yield invalid(f"{disk_path}.partition", source["partition"], _PARTITION_RULE)

    return rule


def _nfs(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("server", "path")(source, path)
    if not (source.get("path") or "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path") or "", "must be an absolute path")


def _iscsi(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The violations in an iSCSI disk.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateISCSIVolumeSource.
    """
    if not source.get("targetPortal"):
        yield required(f"{path}.targetPortal")
    if source.get("iqn"):
        yield from _iscsi_name(source["iqn"], f"{path}.iqn")
    else:
        yield required(f"{path}.iqn")
    if not 0 <= (source.get("lun") or 0) <= 255:
        yield invalid(f"{path}.lun", source["lun"], _LUN_RULE)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{path}.secretRef")
    if source.get("initiatorName") is not None:
        yield from _iscsi_name(source["initiatorName"], f"{path}.initiatorname")


def _iscsi_name(name: str, path: str) -> Iterator[Violation]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        yield invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not pattern.search(name):
        yield invalid(path, name, "must be valid format")


def _quobyte(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    registry, rule = (
        source.get("registry") or "",
        "must be a host:port pair or multiple pairs separated by commas",
    )
    if not registry:
        yield required(f"{path}.registry", rule)
    elif len((source.get("tenant") or "").encode()) >= 65:
        yield required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*", pair):
                yield invalid(f"{path}.registry", registry, rule)
    yield from _needs("volume")(source, path)


def _flocker(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    if not name and not uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _fibre_channel(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    targets, ids = tuple(source.get("targetWWNs") or ()), source.get("wwids") or ()
    if not targets and not ids:
        yield required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and ids:
        rule = "targetWWNs and wwids can not be specified simultaneously"
        yield invalid(f"{path}.targetWWNs", targets, rule)
    if targets and source.get("lun") is None:
        yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets and not 0 <= source["lun"] <= 255:
        yield invalid(f"{path}.lun", source["lun"], _LUN_RULE)


def _flex(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("driver")(source, path)
    for key in sorted(source.get("options") or {}):
        namespace = f".{key.partition('/')[0].lower()}"
        if namespace.endswith((".kubernetes.io", ".k8s.io")):
            yield invalid(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The violations in an Azure disk.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateAzureDisk, after defaults.
    """
    yield from _needs("diskName", "diskURI")(source, path)
    mode, kind, uri = source.get("cachingMode"), source.get("kind"), source.get("diskURI") or ""
    if mode is not None and mode not in _CACHING_MODES:
        yield not_supported(f"{path}.cachingMode", mode, _CACHING_MODES)
    if kind is not None and kind not in _DISK_KINDS:
        yield not_supported(f"{path}.kind", kind, _DISK_KINDS)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        form = (
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        )
        yield not_supported(f"{path}.diskURI", uri, (form,))
    if kind != "Managed" and not uri.startswith("https://"):
        form = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        yield not_supported(f"{path}.diskURI", uri, (form,))


def _storage_os(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("volumeName")(source, path)
    for field in ("volumeName", "volumeNamespace"):
        name = source.get(field) or ""
        if name:
            yield from each_invalid(f"{path}.{field}", name, dns1123_label_errors(name))
    yield from _secret_name(source, path, "secretRef")


def _cinder(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("volumeID")(source, path)
    yield from _secret_name(source, path, "secretRef")


def _secret_name(source: Mapping[str, Any], path: str, field: str) -> Iterator[Violation]:
    secret = source.get(field)
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.{field}.name")


def _csi(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The violations in an ephemeral CSI volume.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateCSIVolumeSource.
    """
    driver = source.get("driver") or ""
    if not driver:
        yield required(f"{path}.driver")
    else:
        if len(driver.encode()) > 63:
            yield Violation(f"{path}.driver", ErrorType.TOO_LONG, None, "may not be more than 63 bytes")
        yield from each_invalid(f"{path}.driver", driver, dns1123_subdomain_errors(driver.lower()))
    yield from _secret_name(source, path, "nodePublishSecretRef")
    name = (source.get("nodePublishSecretRef") or {}).get("name") or ""
    if name:
        yield from each_invalid(f"{path}.name", name, dns1123_subdomain_errors(name))


def _ephemeral(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    template, template_path = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        yield required(template_path)
    else:
        yield from claim_template_violations(template, template_path)


def _image(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("reference")(source, path)
    policy = source.get("pullPolicy") or _PULL_POLICIES[0]
    if policy not in _PULL_POLICIES:
        yield not_supported(f"{path}.pullPolicy", policy, _PULL_POLICIES)


PLUGIN_RULES: Mapping[str, Rule] = {
    "gcePersistentDisk": _disk("pdName", "persistentDisk"),
    "awsElasticBlockStore": _disk("volumeID"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
