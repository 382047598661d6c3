"""Validation of what containers do with volumes: mounts and block devices."""

from collections.abc import Iterator, Mapping

from nodewright.engine.admission.validation.references import (
    Fields,
    path_backstep_violations,
    relative_path_violations,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.objects import Container

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")


def mount_violations(container: Container, volumes: Mapping[str, Fields], path: str) -> Iterator[Violation]:
    """The violations in a container's mounts of these volumes.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateVolumeMounts; the paths of `subPath` and the
        fields after it do not name the mount, as upstream.
    """
    used: set[str] = set()
    devices = {
        device.get("name") or "": device.get("devicePath") or "" for device in container.volume_devices
    }
    for index, mount in enumerate(container.volume_mounts):
        mount_path, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{mount_path}.name")
        if name not in volumes:
            yield Violation(f"{mount_path}.name", ErrorType.NOT_FOUND, name)
        if not target:
            yield required(f"{mount_path}.mountPath")
        if target in used:
            yield invalid(f"{mount_path}.mountPath", target, "must be unique")
        used.add(target)
        if name in devices:
            yield invalid(f"{mount_path}.name", name, "must not already exist in volumeDevices")
        if target in devices.values():
            rule = "must not already exist as a path in volumeDevices"
            yield invalid(f"{mount_path}.mountPath", target, rule)
        yield from _sub_path_violations(mount, path, mount_path)
        yield from _mount_option_violations(mount, container, path)


def _sub_path_violations(mount: Fields, path: str, mount_path: str) -> Iterator[Violation]:
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if sub_path:
        yield from relative_path_violations(sub_path, f"{path}.subPath")
    if expression:
        if sub_path:
            rule = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{mount_path}.subPathExpr", expression, rule)
        yield from relative_path_violations(expression, f"{path}.subPathExpr")


def _mount_option_violations(mount: Fields, container: Container, path: str) -> Iterator[Violation]:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        field = f"{path}.mountPropagation"
        if propagation not in _PROPAGATIONS:
            yield not_supported(field, propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not (container.security_context or {}).get("privileged"):
            rule = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(field, rule)
    if recursive in ("Enabled", "IfPossible"):
        field = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            yield forbidden(field, "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            rule = "may only be specified when mountPropagation is None or not specified"
            yield forbidden(field, rule)
    elif recursive is not None and recursive != "Disabled":
        yield not_supported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE_READ_ONLY)


def device_violations(container: Container, volumes: Mapping[str, Fields], path: str) -> Iterator[Violation]:
    """The violations in a container's block devices, which are volumes, too.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateVolumeDevices.
    """
    names, targets = set[str](), set[str]()
    mounts = {mount.get("name") or "": mount.get("mountPath") or "" for mount in container.volume_mounts}
    for index, device in enumerate(container.volume_devices):
        name_path, target_path = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        name, target = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(name_path)
        if name in names:
            yield invalid(name_path, name, "must be unique")
        if name not in volumes:
            yield Violation(name_path, ErrorType.NOT_FOUND, name)
        elif all(volumes[name].get(kind) is None for kind in _BLOCK_SOURCES):
            yield invalid(name_path, name, _NO_BLOCK_SOURCE)
        if not target:
            yield required(target_path)
        if target in targets:
            yield invalid(target_path, target, "must be unique")
        if any(path_backstep_violations(target, target_path)):
            yield invalid(target_path, target, "can not contain backsteps ('..')")
        else:
            targets.add(target)
        if name in mounts:
            yield invalid(name_path, name, "must not already exist in volumeMounts")
        if target in mounts.values():
            yield invalid(target_path, target, "must not already exist as a path in volumeMounts")
        names.update((name,) if name else ())


_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
_NO_BLOCK_SOURCE = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
