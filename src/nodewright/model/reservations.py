"""What a configuration keeps from pods: kube and system reservations, reserved CPUs, hard thresholds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodewright.model.faults import ConfigFault, Stage
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ResourceList
from nodewright.model.thresholds import EvictionSettings, Threshold, parse_thresholds
from nodewright.values.golang import NumberError, parse_int, quoted
from nodewright.values.idset import LARGEST_ID, CPUSet
from nodewright.values.quantity import Quantity, QuantityError

RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
"""Resources that can be reserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """What is kept from pods.

    None stands for "not configured", which differs from "nothing" in what is written to cgroups.
    """

    kube: ResourceList | None = None
    system: ResourceList | None = None
    hard: tuple[Threshold, ...] = ()
    cpus: CPUSet = field(default_factory=CPUSet)
    """CPUs that are reserved by number; their count stands for the CPU reservation of both."""


@dataclass(frozen=True, slots=True)
class ReadReservations:
    """The reservations that a configuration says; with faults, those that could be read."""

    reservations: Reservations
    faults: tuple[ConfigFault, ...] = ()


def read_reservations(config: KubeletConfiguration, machine: MachineInfo | None = None) -> ReadReservations:
    """What the configuration keeps from pods, on this machine; without one, CPU numbers are not checked.

    Errors:  in the value, in the order in which the kubelet would come across them.
    Follows: v1.36, cmd/kubelet/app/server.go, run, getReservedCPUs, parseResourceList.
    Departs: resources in order, where the kubelet walks a map; all faults, where it stops at the first.
    """
    faults: list[ConfigFault] = []
    cpus = _reserved_cpus(config.reserved_system_cpus, machine, faults)
    kube, system = dict(config.kube_reserved), dict(config.system_reserved)
    if cpus:
        # CPUs by number outdo amounts of CPU in both.
        kube.pop("cpu", None)
        system["cpu"] = str(len(cpus))
    thresholds = parse_thresholds(EvictionSettings(hard=config.eviction_hard))
    found = Reservations(
        kube=_amounts("kube", kube, faults),
        system=_amounts("system", system, faults),
        hard=thresholds.thresholds,
        cpus=cpus,
    )
    return ReadReservations(found, (*faults, *thresholds.faults))


def parse_cpu_list(text: str) -> tuple[tuple[int, int], ...]:
    """The ranges of CPUs, first and last, that a list such as `0-3,8` names.

    Errors:  NumberError with the kubelet's message.
    Follows: v1.36, k8s.io/utils/cpuset, Parse.

    >>> parse_cpu_list("0-3,8")
    ((0, 3), (8, 8))
    """
    ranges = []
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first = parse_int(low)
        last = parse_int(high) if dash else first
        if first > last:
            raise NumberError(f"invalid range {quoted(part)} ({first} > {last})")
        ranges.append((first, last))
    return tuple(ranges)


def _reserved_cpus(text: str, machine: MachineInfo | None, faults: list[ConfigFault]) -> CPUSet:
    """The CPUs that are reserved by number; none when there is something wrong with them."""
    if not text:
        return CPUSet()
    trouble = _no_topology(machine)
    if trouble is None:
        try:
            ranges = parse_cpu_list(text)
        except NumberError as error:
            trouble = f"unable to parse reserved-cpus list: {error}"
        else:
            cpus = CPUSet(_mask(ranges))
            if machine is None:
                return cpus
            online = CPUSet.from_ids(
                cpu for numa in machine.topology for core in numa.cores for cpu in core.thread_ids
            )
            if cpus <= online and all(last <= LARGEST_ID for _, last in ranges):
                return cpus
            trouble = f"reserved-cpus: {text} is not a subset of online-cpus: {online}"
    faults.append(ConfigFault(stage=Stage.STARTUP, text=trouble, path="reservedSystemCPUs", value=text))
    return CPUSet()


def _mask(ranges: tuple[tuple[int, int], ...]) -> int:
    """The CPUs as bits, but for those beyond any machine's."""
    mask = 0
    for first, last in ranges:
        top = min(last, LARGEST_ID)
        if first <= top:
            mask |= ((1 << (top - first + 1)) - 1) << first
    return mask


def _no_topology(machine: MachineInfo | None) -> str | None:
    """Why the CPUs of a machine cannot be told.

    Follows: v1.36, kubelet/cm/cpumanager/topology/topology.go, Discover.
    """
    if machine is None:
        return None
    why = "could not detect number of cpus" if machine.num_cores == 0 else None
    for core in (core for numa in machine.topology for core in numa.cores):
        if why is not None:
            break
        if not core.thread_ids:
            why = "no cpus provided"
        elif len(set(core.thread_ids)) != len(core.thread_ids):
            why = "cpus provided are not unique"
    return None if why is None else f"unable to discover CPU topology info: {why}"


def _amounts(whose: str, texts: Mapping[str, str], faults: list[ConfigFault]) -> ResourceList | None:
    """The amounts reserved; None when nothing is configured."""
    amounts: ResourceList = {}
    for name, text in sorted(texts.items()):
        try:
            amounts[name] = _amount(name, text)
        except QuantityError as error:
            faults.append(
                ConfigFault(
                    stage=Stage.STARTUP,
                    text=f"--{whose}-reserved value failed to parse: {error}",
                    path=f"{whose}Reserved[{name}]",
                    value=text,
                )
            )
    return amounts or None


def _amount(name: str, text: str) -> Quantity:
    if name not in RESERVABLE:
        raise QuantityError(f"cannot reserve {quoted(name)} resource")
    try:
        amount = Quantity.parse(text)
    except QuantityError as error:
        rule = f"failed to parse quantity {quoted(text)} for {quoted(name)} resource: {error}"
        raise QuantityError(rule) from None
    if amount.sign() < 0:
        raise QuantityError(f"resource quantity for {quoted(name)} cannot be negative: {text}")
    return amount
