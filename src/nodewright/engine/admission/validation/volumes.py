"""Validation of volumes: their names and the sources of every type, on the node, projected, or provided by storage systems.

Also of the templates of PersistentVolumeClaims in ephemeral volumes.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from nodewright.engine.admission.validation.placement import label_selector_violations
from nodewright.engine.admission.validation.references import (
    VOLUME_FIELDS,
    Fields,
    field_reference_violations,
    path_backstep_violations,
    relative_path_violations,
    resource_reference_violations,
    volume_file_path_violations,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    absent_fields,
    annotation_violations,
    containers_with_fields,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    label_violations,
    list_violations,
    name_violations,
    not_supported,
    optional_name_violations,
    required,
    unless_short,
    unless_supported,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.quantity import Quantity, QuantityError

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_MODE_RULE = "must be a number between 0 and 0777 (octal), both inclusive"

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

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_OF_METADATA = ("annotations", "labels")
_CLAIM = "PersistentVolumeClaim"


def volume_violations(
    pod: Pod, path: str, *, is_template: bool
) -> tuple[tuple[Violation, ...], Mapping[str, Fields]]:
    """The violations in the pod's volumes, and the valid ones by name.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateVolumes.
    """
    violations: list[Violation] = []
    valid: dict[str, Fields] = {}
    pod_name = "" if is_template else pod.metadata.name
    ephemeral = (volume for volume in pod.spec.volumes if volume.get("ephemeral") is not None)
    created = {f"{pod_name}-{volume.get('name')}" for volume in ephemeral}
    for index, volume in enumerate(pod.spec.volumes):
        volume_path, name = f"{path}[{index}]", volume.get("name") or ""
        own = [
            *_source_violations(volume, volume_path, pod_name, is_template=is_template),
            *name_violations(f"{volume_path}.name", name, dns1123_label_errors),
        ]
        if name in valid:
            own.append(duplicate(f"{volume_path}.name", name))
        if not own:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if pod_name and claim in created:
            rule = "must not reference a PVC that gets created for an ephemeral volume"
            own.append(invalid(f"{volume_path}.persistentVolumeClaim.claimName", claim, rule))
        violations += own
    return tuple(violations), valid


def are_valid_like_others(volumes: Sequence[Fields]) -> bool:
    """Whether the volumes are valid if those of another pod are, from which they differ in the names of tokens' volumes only.

    They are unless a claim is named after the pod, an image has no reference, or a name is given twice.
    """
    names = {volume.get("name") for volume in volumes}
    return len(names) == len(volumes) and all(
        volume.get("ephemeral") is None and volume.get("image") is None for volume in volumes
    )


def _source_violations(volume: Fields, path: str, pod_name: str, *, is_template: bool) -> Iterator[Violation]:
    """The violations in a volume's source; none at all is an emptyDir by default.

    The image of a pod needs a reference, that of a template does not.
    Follows: v1.36, pkg/apis/core/validation/validation.go, validateVolumeSource.
    """
    name, has_source = volume.get("name") or "", False
    for kind in _source_kinds(volume):
        source, rule = volume[kind], _SOURCE_RULES[kind]
        if has_source and kind != "emptyDir":
            yield forbidden(
                f"{path}.{SECOND_SOURCE_PATHS.get(kind, kind)}", "may not specify more than 1 volume type"
            )
        else:
            if kind == "image" and not is_template:
                yield from _needs("reference")(source, f"{path}.image")
            yield from rule(source, f"{path}.{kind}")
        if kind == "iscsi" and source.get("initiatorName") is not None:
            yield from _iscsi_name_violations(name, source, path)
        if kind == "ephemeral" and not has_source and pod_name and name:
            claim = f"{pod_name}-{name}"
            for error in dns1123_subdomain_errors(claim):
                yield invalid(f"{path}.name", name, f'PVC name "{claim}": {error}')
        has_source = True


def _source_kinds(volume: Fields) -> Sequence[str]:
    """The types of the volume's sources, in the order in which the API server looks at them."""
    kinds = [kind for kind, source in volume.items() if source is not None and kind in _SOURCE_RULES]
    return kinds if len(kinds) < 2 else sorted(kinds, key=_SOURCE_ORDER.index)


def _iscsi_name_violations(name: str, source: Fields, path: str) -> Iterator[Violation]:
    if len(f"{name}:{source.get('targetPortal') or ''}".encode()) > 64:
        rule = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        yield invalid(f"{path}.name", name, rule)


# ---------------------------------------------------------------- sources on the node


def _empty_dir(source: Fields, path: str) -> Iterator[Violation]:
    try:
        is_negative = Quantity.parse(str(source.get("sizeLimit") or "0").strip()).sign() < 0
    except QuantityError:
        is_negative = True
    if is_negative:
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(source: Fields, path: str) -> Iterator[Violation]:
    host_path, path_type = source.get("path") or "", source.get("type")
    if not host_path:
        yield required(f"{path}.path")
        return
    yield from path_backstep_violations(host_path, f"{path}.path")
    yield from unless_supported(f"{path}.type", path_type, _HOST_PATH_TYPES)


def _git_repo(source: Fields, path: str) -> Iterator[Violation]:
    yield from absent_fields(source, path, "repository")
    yield from relative_path_violations(source.get("directory") or "", f"{path}.directory")


def _object_items(name_field: str, source: Fields, path: str) -> Iterator[Violation]:
    yield from absent_fields(source, path, name_field)
    yield from _mode_violations(source.get("defaultMode"), f"{path}.defaultMode")
    yield from list_violations(_item_violations, source.get("items"), f"{path}.items")


def _item_violations(item: Fields, path: str) -> Iterator[Violation]:
    """The violations in a key and its path in the volume.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateKeyToPath.
    """
    yield from absent_fields(item, path, "key", "path")
    yield from volume_file_path_violations(item.get("path") or "", f"{path}.path")
    yield from _mode_violations(item.get("mode"), f"{path}.mode")


def _mode_violations(mode: int | None, path: str) -> Iterator[Violation]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, _MODE_RULE)


def _downward_api(source: Fields, path: str) -> Iterator[Violation]:
    yield from _mode_violations(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items") or ():
        yield from _downward_file(item, path)


def _downward_file(file: Fields, path: str) -> Iterator[Violation]:
    """The violations in a file with a pod's field; the paths do not name the item, as upstream.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateDownwardAPIVolumeFile.
    """
    yield from absent_fields(file, path, "path")
    yield from volume_file_path_violations(file.get("path") or "", f"{path}.path")
    field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if field is not None:
        yield from field_reference_violations(field, VOLUME_FIELDS, f"{path}.fieldRef")
        if resource is not None:
            rule = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", rule)
    elif resource is not None:
        yield from resource_reference_violations(resource, f"{path}.resourceFieldRef", in_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from _mode_violations(file.get("mode"), f"{path}.mode")


# ---------------------------------------------------------------- projected volumes


def _projected(source: Fields, path: str) -> Iterator[Violation]:
    """The violations in a projected volume.

    Certificates of pods and trust bundles are dropped before validation, because their gates are off by default.
    Follows: v1.36, pkg/apis/core/validation/validation.go, validateProjectionSources.
    """
    yield from _mode_violations(source.get("defaultMode"), f"{path}.defaultMode")
    used: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        source_path = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if projection.get(kind) is not None]
        for kind in kinds:
            kind_path = f"{source_path}.{kind}"
            yield from _PROJECTIONS[kind](projection[kind], kind_path, path)
            for file, shown in _projected_files(kind, projection[kind]):
                if file in used:
                    yield invalid(path, shown, "conflicting duplicate paths")
                used.add(file)
        if len(kinds) > 1:
            yield forbidden(source_path, "may not specify more than 1 volume type per source")


def _projected_files(kind: str, projection: Fields) -> Iterator[tuple[str, str]]:
    """The paths of the files that a projection names, each with the value that a message about it shows."""
    if kind in ("secret", "configMap", "downwardAPI"):
        for item in projection.get("items") or ():
            if item.get("path"):
                yield item["path"], item["path"] if kind == "downwardAPI" else projection.get("name") or ""


def _projected_items(projection: Fields, path: str, _: str) -> Iterator[Violation]:
    yield from absent_fields(projection, path, "name")
    yield from list_violations(_item_violations, projection.get("items"), f"{path}.items")


def _projected_fields(projection: Fields, path: str, _: str) -> Iterator[Violation]:
    for item in projection.get("items") or ():
        yield from _downward_file(item, path)


def _projected_token(projection: Fields, path: str, volume_path: str) -> Iterator[Violation]:
    seconds = projection.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds is not None and seconds > 1 << 32:
        rule = "may not specify a duration larger than 2^32 seconds"
        yield invalid(f"{path}.expirationSeconds", seconds, rule)
    if not projection.get("path"):
        yield required(f"{volume_path}.path")
    else:
        yield from volume_file_path_violations(projection["path"], f"{volume_path}.path")


_PROJECTIONS: Mapping[str, Callable[[Fields, str, str], Iterator[Violation]]] = {
    "secret": _projected_items,
    "configMap": _projected_items,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _projected_token,
}


# ---------------------------------------------------------------- sources that storage systems provide


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


def _quobyte(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    registry = source.get("registry") or ""
    rule = "must be a host:port pair or multiple pairs separated by commas"
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
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    yield from unless_supported(f"{path}.cachingMode", source.get("cachingMode"), _CACHING_MODES)
    yield from unless_supported(f"{path}.kind", kind, _DISK_KINDS)
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
        name = source.get(field) or None
        yield from optional_name_violations(f"{path}.{field}", name, dns1123_label_errors)
    yield from _secret_name(source, path, "secretRef")


def _cinder(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _needs("volumeID")(source, path)
    yield from _secret_name(source, path, "secretRef")


def _csi(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The violations in an ephemeral CSI volume.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateCSIVolumeSource.
    """
    driver = source.get("driver") or ""
    if not driver:
        yield required(f"{path}.driver")
    else:
        yield from unless_short(f"{path}.driver", driver, 63)
        yield from each_invalid(f"{path}.driver", driver, dns1123_subdomain_errors(driver.lower()))
    yield from _secret_name(source, path, "nodePublishSecretRef")
    name = (source.get("nodePublishSecretRef") or {}).get("name") or None
    yield from optional_name_violations(f"{path}.name", name)


def _ephemeral(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    template, template_path = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        yield required(template_path)
    else:
        yield from claim_template_violations(template, template_path)


def _image(source: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from unless_supported(f"{path}.pullPolicy", source.get("pullPolicy") or None, _PULL_POLICIES)


def _iscsi_name(name: str, path: str) -> Iterator[Violation]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        yield invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not pattern.search(name):
        yield invalid(path, name, "must be valid format")


def _secret_name(source: Mapping[str, Any], path: str, field: str) -> Iterator[Violation]:
    secret = source.get(field)
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.{field}.name")


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

# ---------------------------------------------------------------- the sources of all types


_SOURCE_RULES: Mapping[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "secret": partial(_object_items, "secretName"),
    "downwardAPI": _downward_api,
    "configMap": partial(_object_items, "name"),
    "projected": _projected,
    **PLUGIN_RULES,
}
_SOURCE_ORDER = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""The API server's order: a volume with two sources has the first of them, and the others are errors."""


assert set(_SOURCE_ORDER) == set(_SOURCE_RULES)


# ---------------------------------------------------------------- files of variables


def file_key_volume_violations(pod: Pod, path: str) -> Iterator[Violation]:
    """The violations in references of variables to files: the volume must exist and be an emptyDir.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateFileKeyRefVolumes.
    """
    volumes: dict[str, dict[str, Any]] = {volume.get("name") or "": volume for volume in pod.spec.volumes}
    for container_path, container in containers_with_fields(pod.spec):
        for number, variable in enumerate(container.env):
            if variable.value_from is None:
                continue
            reference = variable.value_from.get("fileKeyRef")
            if reference is None:
                continue
            name = reference.get("volumeName") or ""
            field = f"{path}.{container_path}.env[{number}].valueFrom.fileKeyRef.volumeName"
            if name not in volumes:
                yield Violation(field, ErrorType.NOT_FOUND, name)
            elif _is_no_empty_dir(volumes[name]):
                yield invalid(field, name, "referenced volume must be of type emptyDir")


def _is_no_empty_dir(volume: Fields) -> bool:
    kinds = _source_kinds(volume)
    return bool(kinds) and "emptyDir" not in kinds


# ---------------------------------------------------------------- templates of PersistentVolumeClaims


def claim_template_violations(template: Fields, path: str) -> Iterator[Violation]:
    """The violations in the template of a claim.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeClaimTemplate.
    """
    yield from template_metadata_violations(template.get("metadata") or {}, f"{path}.metadata")
    yield from claim_spec_violations(template.get("spec") or {}, f"{path}.spec")


def template_metadata_violations(meta: Fields, path: str) -> Iterator[Violation]:
    """The violations in the metadata of a claim's template, of which only labels and annotations can be set.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateTemplateObjectMeta.
    """
    yield from annotation_violations(meta.get("annotations") or {}, f"{path}.annotations")
    yield from label_violations(meta.get("labels") or {}, f"{path}.labels")
    for field in sorted(meta):
        # A grace period of 0 is set, as is a list without items.
        is_set = meta[field] not in (None, "", 0) or (meta[field] == 0 and field.endswith("Seconds"))
        if field not in _OF_METADATA and is_set:
            yield forbidden(f"{path}.{'uID' if field == 'uid' else field}", "cannot be set")


def claim_spec_violations(spec: Fields, spec_path: str) -> Iterator[Violation]:
    """The violations in the spec of a claim.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeClaimSpec.
    """
    yield from _access_mode_violations(spec.get("accessModes") or (), f"{spec_path}.accessModes")
    yield from label_selector_violations(spec.get("selector"), f"{spec_path}.selector")
    yield from _storage_violations(spec, f"{spec_path}.resources[storage]")
    for field in ("storageClassName", "volumeAttributesClassName"):
        yield from optional_name_violations(f"{spec_path}.{field}", spec.get(field) or None)
    yield from unless_supported(f"{spec_path}.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            yield from _data_source_violations(spec[field], f"{spec_path}.{field}")
    yield from _source_conflict(spec.get("dataSource"), spec.get("dataSourceRef"), spec_path)


def _access_mode_violations(modes: tuple[str, ...], path: str) -> Iterator[Violation]:
    if not modes:
        yield required(path, "at least 1 access mode is required")
    for mode in modes:
        yield from unless_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _storage_violations(spec: Fields, path: str) -> Iterator[Violation]:
    """The violation of the requested storage, which is a positive amount."""
    text = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if text is None:
        yield required(path)
        return
    amount = Quantity.parse(str(text).strip())
    if amount.sign() <= 0:
        yield invalid(path, str(amount), "must be greater than zero")


def _source_conflict(source: Fields | None, reference: Fields | None, path: str) -> Iterator[Violation]:
    """The violation of two sources that differ; the API server prints no field, but the empty one of its own."""
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        yield invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        yield invalid(path, {}, "must match dataSourceRef")


def _data_source_violations(source: Fields, path: str) -> Iterator[Violation]:
    yield from absent_fields(source, path, "name", "kind")
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != _CLAIM:
        yield invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    yield from optional_name_violations(f"{path}.apiGroup", group or None)
    if path.endswith("Ref"):
        namespace = source.get("namespace") or None
        yield from optional_name_violations(f"{path}.namespace", namespace, dns1123_label_errors)
