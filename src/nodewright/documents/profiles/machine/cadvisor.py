"""Reads cAdvisor's MachineInfo (`/api/v1.3/machine`, or a kubelet's `/spec/`), and checks it for contradictions."""

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineFault, MachineInfo, machine_faults

if TYPE_CHECKING:
    from pathlib import Path

FIELD = "spec.machineInfo"


def contradictions(machine: MachineInfo, source: str = "", field: str = FIELD) -> list[Fault]:
    """Contradictions in a machine, as faults for an InputError. `field` is the machine's path in its document."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if not fault.tolerated]


def irregularities(machine: MachineInfo, source: str = "", field: str = FIELD) -> list[Fault]:
    """Irregularities that the kubelet tolerates, for warnings."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if fault.tolerated]


def _fault(fault: MachineFault, source: str, field: str) -> Fault:
    path = f"{field}.{fault.path}" if field else fault.path
    value = list(fault.value) if isinstance(fault.value, tuple) else fault.value
    return Fault(path=path, value=value, rule=str(fault.rule), source=source)


WithSwap: TypeAlias = tuple[MachineInfo, int | None]
"""A machine, and its swap in bytes; None: not known."""


def read_machine_info(path: "str | Path") -> WithSwap:
    """The machine that a file with cAdvisor's MachineInfo (JSON) describes.

    Errors: InputError with the first field of a wrong type, or with all contradictions.
    """
    content, source = read_file(str(path)).content, str(path)
    documents = parse_documents(content, source)
    value: Any = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or "num_cores" not in value:
        rule = "must be one MachineInfo of cAdvisor: an object with num_cores and topology"
        raise InputError([Fault(source=source, rule=rule)])
    try:
        machine = decode(value, MachineInfo)
    except msgspec.ValidationError as error:
        raise InputError([Fault(source=source, rule=str(error))]) from None
    if faults := contradictions(machine, source, field=""):
        raise InputError(faults)
    swap = value.get("swap_capacity")
    return machine, swap if isinstance(swap, int) and swap >= 0 else None
