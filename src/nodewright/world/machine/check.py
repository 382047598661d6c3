"""Contradictions in a machine that was described to us, as faults of the input."""

from nodewright.model.machine import MachineInfo
from nodewright.model.machine_faults import MachineFault, machine_faults
from nodewright.world.errors import Fault

FIELD = "spec.machineInfo"


def contradictions(machine: MachineInfo, source: str = "", field: str = FIELD) -> list[Fault]:
    """What no machine can be, for an InputError. `field` is where the description stands in its document."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if not fault.tolerated]


def oddities(machine: MachineInfo, source: str = "", field: str = FIELD) -> list[Fault]:
    """What the kubelet takes, though it is strange: worth a warning."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if fault.tolerated]


def _fault(fault: MachineFault, source: str, field: str) -> Fault:
    path = f"{field}.{fault.path}" if field else fault.path
    value = list(fault.value) if isinstance(fault.value, tuple) else fault.value
    return Fault(path=path, value=value, rule=str(fault.rule), source=source)
