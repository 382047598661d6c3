"""Validation of volumes: their names and the sources of every type."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
    containers_with_fields,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.engine.admission.validation.volume_plugins import PLUGIN_RULES, SECOND_SOURCE_PATHS, Rule
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import Pod
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
        own = [*_source_violations(volume, volume_path, pod_name), *_name_violations(name, volume_path)]
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

    They are unless a claim is named after the pod, or a name is given twice.
    """
    names = {volume.get("name") for volume in volumes}
    return len(names) == len(volumes) and all(volume.get("ephemeral") is None for volume in volumes)


def _name_violations(name: str, path: str) -> Iterator[Violation]:
    if name:
        yield from each_invalid(f"{path}.name", name, dns1123_label_errors(name))
    else:
        yield required(f"{path}.name")


def _source_violations(volume: Fields, path: str, pod_name: str) -> Iterator[Violation]:
    """The violations in a volume's source; none at all is an emptyDir by default.

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
    if path_type is not None and path_type not in _HOST_PATH_TYPES:
        yield not_supported(f"{path}.type", path_type, _HOST_PATH_TYPES)


def _git_repo(source: Fields, path: str) -> Iterator[Violation]:
    if not source.get("repository"):
        yield required(f"{path}.repository")
    yield from relative_path_violations(source.get("directory") or "", f"{path}.directory")


def _secret(source: Fields, path: str) -> Iterator[Violation]:
    return _object_items(source, path, "secretName")


def _config_map(source: Fields, path: str) -> Iterator[Violation]:
    return _object_items(source, path, "name")


def _object_items(source: Fields, path: str, name_field: str) -> Iterator[Violation]:
    if not source.get(name_field):
        yield required(f"{path}.{name_field}")
    yield from _mode_violations(source.get("defaultMode"), f"{path}.defaultMode")
    for index, item in enumerate(source.get("items") or ()):
        yield from _item_violations(item, f"{path}.items[{index}]")


def _item_violations(item: Fields, path: str) -> Iterator[Violation]:
    """The violations in a key and its path in the volume.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateKeyToPath.
    """
    for field in ("key", "path"):
        if not item.get(field):
            yield required(f"{path}.{field}")
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
    if not file.get("path"):
        yield required(f"{path}.path")
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
    if not projection.get("name"):
        yield required(f"{path}.name")
    for index, item in enumerate(projection.get("items") or ()):
        yield from _item_violations(item, f"{path}.items[{index}]")


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
_SOURCE_RULES: Mapping[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "secret": _secret,
    "downwardAPI": _downward_api,
    "configMap": _config_map,
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
