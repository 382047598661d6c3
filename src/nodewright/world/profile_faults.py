"""What a NodeProfile may not say, though its fields and types are right."""

from collections import Counter
from collections.abc import Iterator

from nodewright.core.validation import violations
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.world.errors import Fault
from nodewright.world.machine.check import contradictions

_DEFECTS = ("follow", "avoid")
_CGROUP_VERSIONS = (1, 2)


def profile_faults(profile: NodeProfile) -> Iterator[Fault]:
    """The machine's contradictions, settings that there are not, devices that are named twice, bad pods."""
    spec = profile.spec
    yield from contradictions(spec.machine_info)
    yield from _settings(spec)
    for resource, devices in sorted(spec.devices.items()):
        counts = Counter(device.id for device in devices)
        for name in sorted(name for name, count in counts.items() if count > 1):
            yield Fault(path=f"spec.devices[{resource}]", error="Duplicate value", value=name, rule="")
    for index, allocation in enumerate(spec.allocations or ()):
        try:
            CPUSet.parse(allocation.cpus or "")
        except IdSetError as error:
            yield Fault(path=f"spec.allocations[{index}].cpus", value=allocation.cpus, rule=str(error))
    for index, pod in enumerate(spec.pods):
        for one in violations(pod, is_template=True):
            path = f"spec.pods[{index}].{one.path}"
            yield Fault(path=path, error=str(one.type), value=one.value, rule=one.rule)


def _settings(spec: NodeProfileSpec) -> Iterator[Fault]:
    if spec.kubelet_defects not in _DEFECTS:
        values = ", ".join(f'"{one}"' for one in _DEFECTS)
        rule = f"supported values: {values}"
        yield Fault(
            path="spec.kubeletDefects", error="Unsupported value", value=spec.kubelet_defects, rule=rule
        )
    if spec.cgroup_version not in _CGROUP_VERSIONS:
        yield Fault(path="spec.cgroupVersion", value=spec.cgroup_version, rule="must be 1 or 2")
    for field, amount in (
        ("rootFsCapacity", spec.root_fs_capacity),
        ("swapBytes", spec.swap_bytes),
        ("pidMax", spec.pid_max),
    ):
        if amount < 0:
            yield Fault(path=f"spec.{field}", value=amount, rule="must be greater than or equal to 0")
    if spec.page_size_bytes <= 0:
        yield Fault(path="spec.pageSizeBytes", value=spec.page_size_bytes, rule="must be greater than zero")
