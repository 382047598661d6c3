"""Rules about KubeletConfigurations: faults that prevent the kubelet from starting, and settings without effect."""

from collections.abc import Iterator
from functools import cache, lru_cache

from nodewright.engine.core.allocatable import allocatable_reservation
from nodewright.engine.core.cpu.cpu_policy import CPUSettings
from nodewright.engine.core.cpu.cpu_policy import create_policy as create_cpu_policy
from nodewright.engine.core.cpu.cpu_topology import CPUTopology, discover
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.engine.core.memory.memory_policy import MemorySettings, Reservation, create_memory_policy
from nodewright.engine.core.topology.manager_config import topology_manager
from nodewright.model.hardware import MachineInfo, MachineShape, NUMANode, machine_from_shape
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.kubelet_configuration import parse_reservations
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.printable import counted
from nodewright.model.reasons.cpu import (
    AlignBySocketAgainstMachine,
    CPUReservationMissing,
    CPUReservationUnmet,
    CPUReservationZero,
    KubeletHangs,
    ReservedCPUUnknown,
)
from nodewright.model.reasons.memory import (
    NoReservedMemory,
    ReservedMemoryDiffers,
    ReservedMemoryElsewhere,
    ReservedMemoryInexact,
)
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    FieldViolation,
    LintContext,
    Severity,
    SuggestedEdit,
    lint_rule,
)

_OF_MACHINES = AlignBySocketAgainstMachine | CPUReservationUnmet | ReservedCPUUnknown | KubeletHangs
_OF_MEMORY = ReservedMemoryDiffers | NoReservedMemory | ReservedMemoryElsewhere | ReservedMemoryInexact
_OF_CPUS = CPUReservationMissing | CPUReservationZero


@lint_rule("NW301", Severity.ERROR, ConfigSubject)
def _refused(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The kubelet rejects the configuration.

    Finding: the kubelet does not start: {text}

    The file does not decode, sets an unknown or locked feature gate, has an invalid value, or one that fails at the
    start: reservations and thresholds that cannot be parsed, cgroup v1 where `failCgroupV1` is on. The text is the
    kubelet's error.

    Remedy: Correct the field that the error names.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -maxPods: -1
    +maxPods: 110
    ```
    """
    for fault in (*config.faults, *config.settled.faults):
        path = config.prefix + fault.path
        yield FieldViolation(path=path.rstrip("."), facts={"stage": str(fault.stage), "text": fault.text})


@lint_rule("NW302", Severity.WARNING, ConfigSubject)
def _unknown_fields(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An unknown field.

    Finding: unknown field {field}: the kubelet only logs it and ignores the field

    The kubelet reads its file strictly; if that fails because of unknown or repeated fields, it reads it again
    leniently. A misspelt field therefore has no effect, and only the log shows it.

    Remedy: Spell it as in the KubeletConfiguration reference, or remove it.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -maxPod: 50
    +maxPods: 50
    ```
    """
    for path in config.unknown_fields:
        yield FieldViolation(
            path=config.prefix + path, facts={"field": path}, edits=(SuggestedEdit(config.prefix + path),)
        )


@lint_rule("NW303", Severity.ERROR, ConfigSubject)
def _reserved_memory(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """reservedMemory is not the sum of all reservations.

    Finding: the kubelet does not start: {fault}

    With `memoryManagerPolicy: Static`, `reservedMemory` over all NUMA nodes must be exactly kubeReserved +
    systemReserved + the hard eviction threshold of memory. The threshold counts even where it is not set: its
    default is 100Mi. Huge pages cannot be reserved at all.

    Remedy: Change one entry so that the sum is right.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     memoryManagerPolicy: Static
     kubeReserved: {memory: 400Mi}
     reservedMemory:
     - numaNode: 0
    -  limits: {memory: 400Mi}
    +  limits: {memory: 500Mi}
    ```
    """  # noqa: D403 - the name of a field
    reason = _memory_reason(config)
    if not isinstance(reason, _OF_MEMORY):
        return
    path = f"{config.prefix}reservedMemory"
    entries = config.config.reserved_memory
    edits: tuple[SuggestedEdit, ...] = ()
    if isinstance(reason, ReservedMemoryDiffers):
        if not entries:
            limits = {reason.resource: str(reason.node_allocatable)}
            edits = (SuggestedEdit(path, [{"numaNode": 0, "limits": limits}]),)
        elif (now := entries[0].limits.get(reason.resource)) is not None:
            then = now + reason.node_allocatable - reason.over_numa
            if then.sign() > 0:
                edits = (SuggestedEdit(f"{path}[0].limits[{reason.resource}]", then.canonical()),)
    yield FieldViolation(
        path=path if entries else f"{config.prefix}memoryManagerPolicy", facts={"fault": reason}, edits=edits
    )


@lint_rule("NW304", Severity.ERROR, ConfigSubject)
def _cpu_reservation(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The static CPU policy without a CPU for the system.

    Finding: the kubelet does not start: {fault}

    The static policy keeps the reserved CPUs for everything without exclusive CPUs, and does not start without any:
    kubeReserved, systemReserved or reservedSystemCPUs must be more than zero.

    Remedy: Reserve a CPU.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     cpuManagerPolicy: static
    +kubeReserved: {cpu: 500m}
    +systemReserved: {cpu: 500m}
    ```
    """
    reason = _cpu_reason(config)
    if isinstance(reason, _OF_CPUS):
        edit = SuggestedEdit(f"{config.prefix}kubeReserved[{CPU}]", "1")
        yield FieldViolation(path=f"{config.prefix}cpuManagerPolicy", facts={"fault": reason}, edits=(edit,))


@lint_rule("NW305", Severity.ERROR, ConfigSubject)
def _managers(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Policies and options that the managers refuse.

    Finding: the kubelet does not start: {fault}

    Policies of the managers and their options are not checked with the file but when the managers are created:
    unknown names and values, alpha options without their gate, options that exclude one another, `align-by-socket`
    under `single-numa-node`, more than 8 NUMA nodes. Validating the file alone does not detect it.

    Remedy: Correct the option or policy that the error names.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     cpuManagerPolicy: static
     reservedSystemCPUs: "0"
    -cpuManagerPolicyOptions: {full-pcpus: "true"}
    +cpuManagerPolicyOptions: {full-pcpus-only: "true"}
    ```
    """
    # Checked only when the managers are created; what validation refuses is a finding of NW301.
    refused = {fault.path for fault in (*config.faults, *config.settled.faults)}
    for field, reason in (
        ("topologyManagerPolicy", _topology_reason(config)),
        ("cpuManagerPolicy", _cpu_reason(config)),
        ("memoryManagerPolicy", _memory_reason(config)),
    ):
        if reason is not None and field not in refused and not isinstance(reason, _OF_MEMORY | _OF_CPUS):
            yield FieldViolation(path=f"{config.prefix}{field}", facts={"field": field, "fault": reason})


def _topology_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    manager = topology_manager(
        kubelet.topology_manager_policy,
        kubelet.topology_manager_scope,
        kubelet.topology_manager_policy_options,
        config.machine.topology if config.machine else (),
    )
    return manager.because[0] if isinstance(manager, Refused) else None


def _cpu_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    parsed = parse_reservations(kubelet, config.machine)
    if parsed.faults:
        return None
    machine = config.machine or _large_machine()
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        options=kubelet.cpu_manager_policy_options,
        reservation=_reservation(config).get(CPU),
        reserved_cpus=parsed.reservations.cpus,
        topology_policy=kubelet.topology_manager_policy,
        gates=CPUGates.of(config.settled.gates),
    )
    topology = _topology(machine)
    policy = topology if isinstance(topology, Refused) else create_cpu_policy(topology.value, settings)
    reason = policy.because[0] if isinstance(policy, Refused) else None
    return None if config.machine is None and isinstance(reason, _OF_MACHINES) else reason


@cache
def _large_machine() -> MachineInfo:
    """Stands for an unknown machine: large enough for every reservation."""
    return machine_from_shape(MachineShape(cores=512, threads=2, memory_bytes=1 << 50))


@lru_cache(maxsize=8)
def _topology(machine: MachineInfo) -> Granted[CPUTopology] | Refused:
    return discover(machine)


def _memory_reason(config: ConfigSubject) -> Reason | None:
    kubelet = config.config
    if parse_reservations(kubelet, config.machine).faults:
        return None
    if config.machine is None and _memory_threshold_is_relative(config):
        return None  # The amount depends on the machine.
    ids = sorted(
        NUMASet.of(0) | NUMASet.from_possible_ids(entry.numa_node for entry in kubelet.reserved_memory)
    )
    settings = MemorySettings(
        policy=kubelet.memory_manager_policy,
        reserved=tuple(Reservation(entry.numa_node, entry.limits) for entry in kubelet.reserved_memory),
        node_allocatable=_reservation(config),
    )
    topology = config.machine.topology if config.machine else tuple(NUMANode(node_id=id_) for id_ in ids)
    policy = create_memory_policy(topology, settings)
    return policy.because[0] if isinstance(policy, Refused) else None


def _reservation(config: ConfigSubject) -> ResourceList:
    """The total reservation; on an unknown machine without percentage thresholds."""
    if config.resources is not None:
        return config.resources.total_reserved
    parsed = parse_reservations(config.config, config.machine)
    memory_bytes = config.machine.memory_capacity if config.machine else 1 << 50
    capacity = {
        CPU: Quantity.of(1 << 20),
        MEMORY: Quantity.of(memory_bytes, QuantityFormat.BINARY_SI),
    }
    return allocatable_reservation(capacity, parsed.reservations)


def _memory_threshold_is_relative(config: ConfigSubject) -> bool:
    return any(
        threshold.signal is Signal.MEMORY_AVAILABLE and threshold.value.quantity is None
        for threshold in parse_reservations(config.config).reservations.hard_thresholds
    )


@lint_rule("NW306", Severity.WARNING, ConfigSubject)
def _without_effect(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A setting without effect.

    Finding: {field} has no effect with {other}: {value}

    Options and scope of the topology manager are ignored under the policy `none`; `prefer-closest-numa-nodes`
    chooses between sets of several nodes, of which `single-numa-node` has none; `reservedMemory` counts only under
    the static memory policy.

    Remedy: Remove it, or set the policy that it was meant for.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +cpuManagerPolicy: static
    +kubeReserved: {cpu: "1"}
    +topologyManagerPolicy: restricted
     topologyManagerScope: pod
    ```
    """
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
        yield FieldViolation(
            path=path, facts={"field": name, "other": other, "value": value}, edits=(SuggestedEdit(path),)
        )


@lint_rule("NW307", Severity.WARNING, ConfigSubject)
def _parts_of_cpus_reserved(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A fraction of a CPU is reserved under the static policy.

    Finding: {amount} CPUs are reserved: allocatable is reduced by that amount, but the CPU manager keeps {whole}

    The CPU manager rounds the reservation up to whole CPUs and never allocates those; allocatable, which the
    scheduler and the kubelet's admission use, is reduced only by the fraction. A pod of whole CPUs can fit by the
    sum although too few CPUs are free: it fails on the node.

    Remedy: Reserve a whole number of CPUs.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     cpuManagerPolicy: static
    -kubeReserved: {cpu: 500m}
    +kubeReserved: {cpu: 1000m}
    ```
    """
    if not config.is_static_cpu or _cpu_reason(config) is not None:
        return
    if parse_reservations(config.config, config.machine).faults:
        return  # NW301
    amount = _reservation(config).get(CPU, ZERO)
    if amount.milli_value() % 1000:
        kube = Quantity.parse(str(config.config.kube_reserved.get(CPU, "0")))
        rounded_up = Quantity.of_milli(-(-amount.milli_value() // 1000) * 1000 - amount.milli_value()) + kube
        field = "kubeReserved" if CPU in config.config.kube_reserved else "systemReserved"
        if field == "systemReserved":
            rounded_up = rounded_up - kube + Quantity.parse(str(config.config.system_reserved.get(CPU, "0")))
        path = f"{config.prefix}{field}[{CPU}]"
        whole = -(-amount.milli_value() // 1000)
        facts = {"amount": str(amount), "whole": whole}
        yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path, rounded_up.canonical()),))


@lint_rule("NW308", Severity.WARNING, ConfigSubject)
def _cores_reserved_in_part(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Reserved CPUs split cores.

    Finding: {reserved} reserved: full-pcpus-only leaves {wasted} more unused, the other threads of those cores

    With `full-pcpus-only` no core with a reserved thread is allocated. The rest of such a core is lost to exclusive
    containers although allocatable counts it; together with `distribute-cpus-across-numa` the kubelet can even
    hang. Needs `--node`, for the threads of a core.

    Remedy: Reserve whole cores: all threads of each.

    ```diff vm-4
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     cpuManagerPolicy: static
     cpuManagerPolicyOptions: {full-pcpus-only: "true"}
    -reservedSystemCPUs: "0"
    +reservedSystemCPUs: "0-1"
    ```
    """
    if config.machine is None or not config.is_static_cpu:
        return
    if config.config.cpu_manager_policy_options.get("full-pcpus-only", "").lower() not in ("true", "t", "1"):
        return
    topology = _topology(config.machine)
    if isinstance(topology, Refused) or _cpu_reason(config) is not None or topology.value.cpus_per_core < 2:
        return
    threads = topology.value.cpus_per_core
    reserved_cpus = parse_reservations(config.config, config.machine).reservations.cpus
    count = -(-_reservation(config).get(CPU, ZERO).milli_value() // 1000)
    lost = (topology.value.whole_cores(reserved_cpus) - reserved_cpus) if reserved_cpus else ()
    wasted = len(lost) if reserved_cpus else -count % threads
    if wasted:
        field = "reservedSystemCPUs" if reserved_cpus else "kubeReserved"
        path = config.prefix + field
        facts = {
            "reserved": str(reserved_cpus) if reserved_cpus else count,
            "wasted": counted(wasted, "CPU"),
            "threads": threads,
        }
        edits = (
            (SuggestedEdit(path, str(topology.value.whole_cores(reserved_cpus))),) if reserved_cpus else ()
        )
        yield FieldViolation(path=path, facts=facts, edits=edits)
