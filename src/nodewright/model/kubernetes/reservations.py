"""Reservations of a kubelet configuration: kube-reserved, system-reserved, reserved CPUs, hard thresholds."""

from collections.abc import Mapping

import msgspec

from nodewright.model.hardware.machine_info import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, Threshold, parse_thresholds
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.values.golang import NumberError, parse_int, quoted
from nodewright.model.values.idset import LARGEST_ID, CPUSet
from nodewright.model.values.quantity import Quantity, QuantityError

RESERVABLE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pid")
"""The resources that can be reserved."""


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """What is reserved and not available to pods.

    None means "not configured", which differs from "nothing" in what is written to cgroups.
    """

    kube: ResourceList | None = None
    system: ResourceList | None = None
    hard_thresholds: tuple[Threshold, ...] = ()
    cpus: CPUSet = msgspec.field(default_factory=CPUSet)
    """CPUs that are reserved by number; their count replaces the CPU amounts of both reservations."""


class ParsedReservations(msgspec.Struct, frozen=True):
    """The reservations of a configuration; with faults, those that could be parsed."""

    reservations: Reservations
    faults: tuple[ConfigFault, ...] = ()


def parse_reservations(
    config: KubeletConfiguration, machine: MachineInfo | None = None
) -> ParsedReservations:
    """The reservations of the configuration on this machine; without a machine, CPU numbers are not checked.

    Errors:  in the value, in the order in which the kubelet encounters them.
    Follows: v1.36, cmd/kubelet/app/server.go, run, getReservedCPUs, parseResourceList.
    Departs: resources in order, where the kubelet iterates over a map; all faults, where it stops at the first.
    """
    faults: list[ConfigFault] = []
    cpus = _reserved_cpus(config.reserved_system_cpus, machine, faults)
    kube, system = dict(config.kube_reserved), dict(config.system_reserved)
    if cpus:
        # CPUs by number override the CPU amounts in both.
        kube.pop("cpu", None)
        system["cpu"] = str(len(cpus))
    thresholds = parse_thresholds(EvictionSettings(hard=config.eviction_hard))
    reservations = Reservations(
        kube=_amounts("kube", kube, faults),
        system=_amounts("system", system, faults),
        hard_thresholds=thresholds.thresholds,
        cpus=cpus,
    )
    return ParsedReservations(reservations, (*faults, *thresholds.faults))


def parse_cpu_list(text: str) -> tuple[tuple[int, int], ...]:
    """The ranges of CPUs, as (first, last), in a list such as `0-3,8`.

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
    """The CPUs that are reserved by number; none if the list has a fault."""
    if not text:
        return CPUSet()
    error_text = _topology_error(machine)
    if error_text is None:
        try:
            ranges = parse_cpu_list(text)
        except NumberError as error:
            error_text = f"unable to parse reserved-cpus list: {error}"
        else:
            cpus = CPUSet(_mask(ranges))
            if machine is None:
                return cpus
            online = CPUSet.from_possible_ids(
                cpu for numa in machine.topology for core in numa.cores for cpu in core.thread_ids
            )
            if cpus <= online and all(last <= LARGEST_ID for _, last in ranges):
                return cpus
            error_text = f"reserved-cpus: {text} is not a subset of online-cpus: {online}"
    faults.append(
        ConfigFault(stage=ConfigStage.STARTUP, text=error_text, path="reservedSystemCPUs", value=text)
    )
    return CPUSet()


def _mask(ranges: tuple[tuple[int, int], ...]) -> int:
    """The CPUs as bits, without those beyond the largest possible number."""
    mask = 0
    for first, last in ranges:
        top = min(last, LARGEST_ID)
        if first <= top:
            mask |= ((1 << (top - first + 1)) - 1) << first
    return mask


def _topology_error(machine: MachineInfo | None) -> str | None:
    """The kubelet's error if the CPU topology of a machine cannot be discovered.

    Follows: v1.36, kubelet/cm/cpumanager/topology/topology.go, Discover.
    """
    if machine is None:
        return None
    fault = "could not detect number of cpus" if machine.num_cores == 0 else None
    for core in (core for numa in machine.topology for core in numa.cores):
        if fault is not None:
            break
        if not core.thread_ids:
            fault = "no cpus provided"
        elif len(set(core.thread_ids)) != len(core.thread_ids):
            fault = "cpus provided are not unique"
    return None if fault is None else f"unable to discover CPU topology info: {fault}"


def _amounts(owner: str, texts: Mapping[str, str], faults: list[ConfigFault]) -> ResourceList | None:
    """The reserved amounts; None if nothing is configured."""
    amounts: ResourceList = {}
    for name, text in sorted(texts.items()):
        try:
            amounts[name] = _amount(name, text)
        except QuantityError as error:
            faults.append(
                ConfigFault(
                    stage=ConfigStage.STARTUP,
                    text=f"--{owner}-reserved value failed to parse: {error}",
                    path=f"{owner}Reserved[{name}]",
                    value=text,
                )
            )
    return amounts or None


def _amount(name: str, text: str) -> Quantity:
    if name not in RESERVABLE_RESOURCES:
        raise QuantityError(f"cannot reserve {quoted(name)} resource")
    try:
        amount = Quantity.parse(text)
    except QuantityError as error:
        rule = f"failed to parse quantity {quoted(text)} for {quoted(name)} resource: {error}"
        raise QuantityError(rule) from None
    if amount.sign() < 0:
        raise QuantityError(f"resource quantity for {quoted(name)} cannot be negative: {text}")
    return amount
