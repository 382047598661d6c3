"""Rules about KubeletConfigurations: what keeps the kubelet from starting, and what does not do what it says."""

from collections.abc import Iterator
from functools import cache, lru_cache

from nodewright.core.allocatable import reserved
from nodewright.core.cpu.options import CPUGates
from nodewright.core.cpu.policy import CPUSettings
from nodewright.core.cpu.policy import create_policy as create_cpu_policy
from nodewright.core.cpu.topology import CPUTopology, discover
from nodewright.core.memory.policy import MemorySettings, Reservation
from nodewright.core.memory.policy import create_policy as create_memory_policy
from nodewright.core.topology import topology_manager
from nodewright.lint.findings import Edit, Found, Rule, Severity
from nodewright.lint.subjects import Around, ConfigSubject
from nodewright.model.cpu_reasons import (
    AlignBySocketAgainstMachine,
    CPUReservationMissing,
    CPUReservationUnmet,
    CPUReservationZero,
    KubeletHangs,
    ReservedCPUUnknown,
)
from nodewright.model.machine import MachineInfo, NUMANode
from nodewright.model.memory_reasons import (
    NoReservedMemory,
    ReservedMemoryDiffers,
    ReservedMemoryElsewhere,
    ReservedMemoryInexact,
)
from nodewright.model.objects import ResourceList
from nodewright.model.reasons import Reason
from nodewright.model.reservations import read_reservations
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.model.shape import Shape, machine_of
from nodewright.model.thresholds import Signal
from nodewright.model.verdict import Granted, Refused
from nodewright.values.quantity import ZERO, Format, Quantity

_OF_MACHINES = AlignBySocketAgainstMachine | CPUReservationUnmet | ReservedCPUUnknown | KubeletHangs
_OF_MEMORY = ReservedMemoryDiffers | NoReservedMemory | ReservedMemoryElsewhere | ReservedMemoryInexact
_OF_CPUS = CPUReservationMissing | CPUReservationZero


def _refused(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """What the kubelet itself has against the file."""
    for fault in (*config.faults, *config.settled.faults):
        path = config.prefix + fault.path
        yield Found(path=path.rstrip("."), facts={"stage": str(fault.stage), "text": fault.text})


def _unknown_fields(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Fields that there are not, about which the kubelet writes a line into its log."""
    for path in config.unknown:
        yield Found(path=config.prefix + path, facts={"field": path}, edits=(Edit(config.prefix + path),))


def _reserved_memory(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """`reservedMemory` that is not the sum of all that is reserved."""
    reason = _memory_reason(config)
    if not isinstance(reason, _OF_MEMORY):
        return
    path = f"{config.prefix}reservedMemory"
    entries = config.config.reserved_memory
    edits: tuple[Edit, ...] = ()
    if isinstance(reason, ReservedMemoryDiffers):
        if not entries:
            limits = {reason.resource: str(reason.node_allocatable)}
            edits = (Edit(path, [{"numaNode": 0, "limits": limits}]),)
        elif (now := entries[0].limits.get(reason.resource)) is not None:
            then = now + reason.node_allocatable - reason.over_numa
            if then.sign() > 0:
                edits = (Edit(f"{path}[0].limits[{reason.resource}]", then.canonical()),)
    yield Found(path=path if entries else _top(config), facts={"fault": reason}, edits=edits)


def _cpu_reservation(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """The static CPU policy without a CPU for the system."""
    reason = _cpu_reason(config)
    if isinstance(reason, _OF_CPUS):
        edit = Edit(f"{config.prefix}kubeReserved[{CPU}]", "1")
        yield Found(path=f"{config.prefix}cpuManagerPolicy", facts={"fault": reason}, edits=(edit,))


def _managers(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Policies and options that are looked at only when the managers are made."""
    for field, reason in (
        ("topologyManagerPolicy", _topology_reason(config)),
        ("cpuManagerPolicy", _cpu_reason(config)),
        ("memoryManagerPolicy", _memory_reason(config)),
    ):
        if reason is not None and not isinstance(reason, _OF_MEMORY | _OF_CPUS):
            yield Found(path=f"{config.prefix}{field}", facts={"field": field, "fault": reason})


def _topology_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    made = topology_manager(
        kubelet.topology_manager_policy,
        kubelet.topology_manager_scope,
        kubelet.topology_manager_policy_options,
        config.machine.topology if config.machine else (),
    )
    return made.because[0] if isinstance(made, Refused) else None


def _cpu_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    read = read_reservations(kubelet, config.machine)
    if read.faults:
        return None
    machine = config.machine or _large_machine()
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        options=kubelet.cpu_manager_policy_options,
        reservation=_reservation(config).get(CPU),
        reserved_cpus=read.reservations.cpus,
        topology_policy=kubelet.topology_manager_policy,
        gates=CPUGates.of(config.settled.gates),
    )
    found = _topology(machine)
    made = found if isinstance(found, Refused) else create_cpu_policy(found.value, settings)
    reason = made.because[0] if isinstance(made, Refused) else None
    return None if config.machine is None and isinstance(reason, _OF_MACHINES) else reason


@cache
def _large_machine() -> MachineInfo:
    """What stands for a machine that is not known: one with room for every reservation."""
    return machine_of(Shape(cores=512, threads=2, memory_bytes=1 << 50))


@lru_cache(maxsize=8)
def _topology(machine: MachineInfo) -> Granted[CPUTopology] | Refused:
    return discover(machine)


def _memory_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    if read_reservations(kubelet, config.machine).faults:
        return None
    if config.machine is None and _memory_threshold_is_relative(config):
        return None  # What it comes to depends on the machine.
    ids = sorted({0, *(one.numa_node for one in kubelet.reserved_memory)})
    settings = MemorySettings(
        policy=kubelet.memory_manager_policy,
        reserved=tuple(Reservation(one.numa_node, one.limits) for one in kubelet.reserved_memory),
        node_allocatable=_reservation(config),
    )
    topology = config.machine.topology if config.machine else tuple(NUMANode(node_id=one) for one in ids)
    made = create_memory_policy(topology, settings)
    return made.because[0] if isinstance(made, Refused) else None


def _reservation(config: ConfigSubject) -> ResourceList:
    """What is kept from pods; on a machine that is not known, thresholds in per cent are left out."""
    if config.resources is not None:
        return config.resources.reservation
    read = read_reservations(config.config, config.machine)
    memory_bytes = config.machine.memory_capacity if config.machine else 1 << 50
    capacity = {
        CPU: Quantity.of(1 << 20),
        MEMORY: Quantity.of(memory_bytes, Format.BINARY_SI),
    }
    return reserved(capacity, read.reservations)


def _memory_threshold_is_relative(config: ConfigSubject) -> bool:
    return any(
        one.signal is Signal.MEMORY_AVAILABLE and one.value.quantity is None
        for one in read_reservations(config.config).reservations.hard
    )


def _without_effect(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Settings that nothing looks at, because another one is off."""
    kubelet, document = config.config, config.document
    idle: list[tuple[str, str, str]] = []
    if kubelet.topology_manager_policy == "none":
        idle += [
            (name, "topologyManagerPolicy", "none")
            for name in ("topologyManagerPolicyOptions", "topologyManagerScope")
            if document.get(name) and document[name] != "container"
        ]
    elif kubelet.topology_manager_policy == "single-numa-node":
        options = kubelet.topology_manager_policy_options
        if options.get("prefer-closest-numa-nodes", "").lower() in ("true", "t", "1"):
            name = "topologyManagerPolicyOptions[prefer-closest-numa-nodes]"
            idle.append((name, "topologyManagerPolicy", "single-numa-node"))
    if kubelet.memory_manager_policy == "None" and kubelet.reserved_memory:
        idle.append(("reservedMemory", "memoryManagerPolicy", "None"))
    if kubelet.eviction_minimum_reclaim and not (kubelet.eviction_hard or kubelet.eviction_soft):
        idle.append(("evictionMinimumReclaim", "evictionHard", "{}"))
    for name, other, value in idle:
        path = config.prefix + name
        yield Found(path=path, facts={"field": name, "other": other, "value": value}, edits=(Edit(path),))


def _parts_of_cpus_reserved(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """The static policy keeps whole CPUs for the system, where allocatable says a fraction."""
    if not config.is_static_cpu or _cpu_reason(config) is not None:
        return
    amount = _reservation(config).get(CPU, ZERO)
    if amount.milli_value() % 1000:
        kube = Quantity.parse(str(config.config.kube_reserved.get(CPU, "0")))
        up = Quantity.of_milli(-(-amount.milli_value() // 1000) * 1000 - amount.milli_value()) + kube
        field = "kubeReserved" if CPU in config.config.kube_reserved else "systemReserved"
        if field == "systemReserved":
            up = up - kube + Quantity.parse(str(config.config.system_reserved.get(CPU, "0")))
        path = f"{config.prefix}{field}[{CPU}]"
        whole = -(-amount.milli_value() // 1000)
        facts = {"amount": str(amount), "whole": whole}
        yield Found(path=path, facts=facts, edits=(Edit(path, up.canonical()),))


def _cores_reserved_in_part(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """full-pcpus-only gives out no core of which a thread is the system's."""
    if config.machine is None or not config.is_static_cpu:
        return
    if config.config.cpu_manager_policy_options.get("full-pcpus-only", "").lower() not in ("true", "t", "1"):
        return
    found = _topology(config.machine)
    if isinstance(found, Refused) or _cpu_reason(config) is not None or found.value.cpus_per_core < 2:
        return
    threads = found.value.cpus_per_core
    read = read_reservations(config.config, config.machine).reservations.cpus
    count = -(-_reservation(config).get(CPU, ZERO).milli_value() // 1000)
    lost = (found.value.whole_cores(read) - read) if read else ()
    wasted = len(lost) if read else -count % threads
    if wasted:
        field = "reservedSystemCPUs" if read else "kubeReserved"
        path = config.prefix + field
        facts = {"reserved": str(read) if read else count, "wasted": wasted, "threads": threads}
        edits = (Edit(path, str(found.value.whole_cores(read))),) if read else ()
        yield Found(path=path, facts=facts, edits=edits)


def _top(config: ConfigSubject) -> str:
    return f"{config.prefix}memoryManagerPolicy"


MANAGER_RULES = (
    Rule("NW301", Severity.ERROR, (ConfigSubject,), _refused),
    Rule("NW302", Severity.WARNING, (ConfigSubject,), _unknown_fields),
    Rule("NW303", Severity.ERROR, (ConfigSubject,), _reserved_memory),
    Rule("NW304", Severity.ERROR, (ConfigSubject,), _cpu_reservation),
    Rule("NW305", Severity.ERROR, (ConfigSubject,), _managers),
    Rule("NW306", Severity.WARNING, (ConfigSubject,), _without_effect),
    Rule("NW307", Severity.WARNING, (ConfigSubject,), _parts_of_cpus_reserved),
    Rule("NW308", Severity.WARNING, (ConfigSubject,), _cores_reserved_in_part),
)
