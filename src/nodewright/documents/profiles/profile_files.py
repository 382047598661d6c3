"""Loads and validates NodeProfile files."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nodewright.documents.formats.decode import checked, decode
from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.allocations import allocation_faults
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.devices.device_state import PREFERENCES
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.hardware.machine_faults import contradictions
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.node_profile import (
    API_VERSION,
    Device,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
)
from nodewright.model.releases.release_table import release_table
from nodewright.model.values.idset import NUMASet

if TYPE_CHECKING:
    from pathlib import Path

_DEFECTS = ("follow", "avoid")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CGROUP_VERSIONS = (1, 2)


def profile_faults(profile: NodeProfile) -> Iterator[Fault]:
    """Faults beyond the schema: contradictory machines, unknown settings, duplicate devices, invalid pods."""
    spec, name = profile.spec, profile.metadata.name
    # A profile needs no name; one that it has is a Node's.
    for rule in dns1123_subdomain_errors(name) if name else ():
        yield Fault(path="metadata.name", value=name, rule=rule)
    yield from contradictions(spec.machine_info)
    yield from _setting_faults(spec)
    for resource, devices in sorted(spec.devices.items()):
        counts = Counter(device.id for device in devices)
        for name in sorted(name for name, count in counts.items() if count > 1):
            yield Fault(path=f"spec.devices[{resource}]", error="Duplicate value", value=name, rule="")
        yield from _numa_node_faults(resource, devices, spec.machine_info)
    yield from allocation_faults(spec)
    for index, not_judged in enumerate(spec.not_judged):
        yield from _unsupported(f"spec.notJudged[{index}].part", not_judged.part, tuple(NodePart))
    uids: set[str] = set()
    for index, pod in enumerate(spec.pods):
        if (uid := with_uid(pod).uid) in uids:
            rule = "another pod of the profile has this uid, or the same namespace and name without one"
            yield Fault(path=f"spec.pods[{index}]", error="Duplicate value", value=uid, rule=rule)
        uids.add(uid)
        for violation in pod_violations(with_defaults(pod), is_template=True):
            path = f"spec.pods[{index}].{violation.path}"
            yield Fault(path=path, error=str(violation.type), value=violation.value, rule=violation.rule)


def _numa_node_faults(resource: str, devices: Sequence[Device], machine: MachineInfo) -> Iterator[Fault]:
    known = NUMASet.from_possible_ids(node.node_id for node in machine.topology)
    for index, device in enumerate(devices):
        for position, numa in enumerate(device.numa_nodes or ()):
            if numa < 0 or numa not in known:
                path = f"spec.devices[{resource}][{index}].numaNodes[{position}]"
                rule = f"not a NUMA node of the machine, which has {known or 'none'}"
                yield Fault(path=path, value=numa, rule=rule)


def _setting_faults(spec: NodeProfileSpec) -> Iterator[Fault]:
    yield from _unsupported("spec.kubeletDefects", spec.kubelet_defects, _DEFECTS)
    for resource, preference in sorted(spec.preferred_allocation.items()):
        yield from preferred_allocation_faults(f"spec.preferredAllocation[{resource}]", preference)
    if spec.cgroup_version not in CGROUP_VERSIONS:
        yield Fault(path="spec.cgroupVersion", value=spec.cgroup_version, rule="must be 1 or 2")
    for field, amount in (
        ("rootFsCapacity", spec.root_fs_capacity),
        ("swapBytes", spec.swap_bytes),
        ("pidMax", spec.pid_max),
    ):
        if amount < 0:
            yield Fault(path=f"spec.{field}", value=amount, rule="must be greater than or equal to 0")
    for name, quantity in spec.allocatable.items():
        if quantity.sign() < 0:
            rule = "must be greater than or equal to 0"
            yield Fault(path=f"spec.allocatable[{name}]", value=str(quantity), rule=rule)
    for index, taint in enumerate(spec.taints):
        yield from _unsupported(f"spec.taints[{index}].effect", taint.effect, _EFFECTS)
    if spec.page_size_bytes <= 0:
        yield Fault(path="spec.pageSizeBytes", value=spec.page_size_bytes, rule="must be greater than zero")


def preferred_allocation_faults(path: str, preference: str) -> Iterator[Fault]:
    """A fault if a device plugin cannot have this allocation preference."""
    yield from _unsupported(path, preference, PREFERENCES)


def _unsupported(path: str, value: str, supported: Collection[str]) -> Iterator[Fault]:
    if value not in supported:
        values = ", ".join(f'"{name}"' for name in supported)
        yield Fault(path=path, error="Unsupported value", value=value, rule=f"supported values: {values}")


KIND = "NodeProfile"


def load_profile(path: "str | Path") -> NodeProfile:
    """The node that the file describes.

    Errors: InputError with all faults of the file.
    """
    file = read_file(str(path))
    return profile_from_bytes(file.content, file.source)


def profile_from_bytes(content: bytes, source: str) -> NodeProfile:
    """The node that the bytes describe; otherwise like load_profile."""
    documents = parse_documents(content, source)
    if len(documents) != 1:
        raise InputError([Fault(rule=f"expected one {KIND}, not {len(documents)} documents", source=source)])
    value: Any = documents[0].value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"expected a document with apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=source)])
    return profile_from_document(
        value, ObjectLocation(source, content, document=documents[0].number, documents=1)
    )


def profile_from_document(value: dict[str, Any], location: ObjectLocation) -> NodeProfile:
    """The node that a document of that kind describes; otherwise like load_profile."""
    check = checked(value, KIND)
    try:
        profile = decode(check.valid_part(), NodeProfile)
    except msgspec.ValidationError:
        # Without its faulty fields the document is not a profile: the rest cannot be validated.
        raise InputError(location.locate_all(check.faults)) from None
    if faults := [*check.faults, *profile_faults(profile)]:
        raise InputError([*location.locate_all(faults), *_kubelet_config_faults(profile, location.source)])
    return profile


def _kubelet_config_faults(profile: NodeProfile, source: str) -> tuple[Fault, ...]:
    """The faults of the kubelet's configuration; alone they do not matter, because commands can replace it."""
    spec = profile.spec
    version = spec.cgroup_version if spec.cgroup_version in CGROUP_VERSIONS else 2
    host = ConfigHost(cgroup_version=version, release=release_table(spec.kubernetes_version))
    try:
        kubelet_config_from(spec.kubelet_configuration, f"{source}: spec.kubeletConfiguration", host=host)
    except InputError as error:
        return error.faults
    return ()
