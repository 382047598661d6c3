"""What a NodeProfile may not say, though its fields and types are right."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from nodewright.core.arrival import identified
from nodewright.core.devices.manager import PREFERENCES
from nodewright.core.validation import violations
from nodewright.model.machine import MachineInfo
from nodewright.model.profile import Device, NodeProfile, NodeProfileSpec, Part
from nodewright.values.idset import NUMASet
from nodewright.world.allocations import allocation_faults
from nodewright.world.errors import Fault
from nodewright.world.machine.check import contradictions

_DEFECTS = ("follow", "avoid")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CGROUP_VERSIONS = (1, 2)


def profile_faults(profile: NodeProfile) -> Iterator[Fault]:
    """The machine's contradictions, settings that there are not, devices that are named twice, bad pods."""
    spec = profile.spec
    yield from contradictions(spec.machine_info)
    yield from _settings(spec)
    for resource, devices in sorted(spec.devices.items()):
        counts = Counter(device.id for device in devices)
        for name in sorted(name for name, count in counts.items() if count > 1):
            yield Fault(path=f"spec.devices[{resource}]", error="Duplicate value", value=name, rule="")
        yield from _homeless(resource, devices, spec.machine_info)
    yield from allocation_faults(spec)
    for index, unknown in enumerate(spec.not_judged):
        yield from _unsupported(f"spec.notJudged[{index}].part", unknown.part, tuple(Part))
    seen: set[str] = set()
    for index, pod in enumerate(spec.pods):
        if (uid := identified(pod).uid) in seen:
            rule = "another pod of the profile has this uid, or the same namespace and name without one"
            yield Fault(path=f"spec.pods[{index}]", error="Duplicate value", value=uid, rule=rule)
        seen.add(uid)
        for one in violations(pod, is_template=True):
            path = f"spec.pods[{index}].{one.path}"
            yield Fault(path=path, error=str(one.type), value=one.value, rule=one.rule)


def _homeless(resource: str, devices: Sequence[Device], machine: MachineInfo) -> Iterator[Fault]:
    known = NUMASet.from_ids(node.node_id for node in machine.topology)
    for index, device in enumerate(devices):
        for place, numa in enumerate(device.numa_nodes or ()):
            if numa < 0 or numa not in known:
                path = f"spec.devices[{resource}][{index}].numaNodes[{place}]"
                rule = f"is no NUMA node of the machine, which has {known or 'none'}"
                yield Fault(path=path, value=numa, rule=rule)


def _settings(spec: NodeProfileSpec) -> Iterator[Fault]:
    yield from _unsupported("spec.kubeletDefects", spec.kubelet_defects, _DEFECTS)
    for resource, preference in sorted(spec.preferred_allocation.items()):
        yield from preference_faults(f"spec.preferredAllocation[{resource}]", preference)
    if spec.cgroup_version not in CGROUP_VERSIONS:
        yield Fault(path="spec.cgroupVersion", value=spec.cgroup_version, rule="must be 1 or 2")
    for field, amount in (
        ("rootFsCapacity", spec.root_fs_capacity),
        ("swapBytes", spec.swap_bytes),
        ("pidMax", spec.pid_max),
    ):
        if amount < 0:
            yield Fault(path=f"spec.{field}", value=amount, rule="must be greater than or equal to 0")
    for index, taint in enumerate(spec.taints):
        yield from _unsupported(f"spec.taints[{index}].effect", taint.effect, _EFFECTS)
    if spec.page_size_bytes <= 0:
        yield Fault(path="spec.pageSizeBytes", value=spec.page_size_bytes, rule="must be greater than zero")


def preference_faults(path: str, preference: str) -> Iterator[Fault]:
    """What is wrong with the name of what a plugin prefers."""
    yield from _unsupported(path, preference, PREFERENCES)


def _unsupported(path: str, value: str, supported: Collection[str]) -> Iterator[Fault]:
    if value not in supported:
        values = ", ".join(f'"{one}"' for one in supported)
        yield Fault(path=path, error="Unsupported value", value=value, rule=f"supported values: {values}")
