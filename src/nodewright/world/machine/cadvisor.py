"""A machine from cAdvisor's own description: `/api/v1.3/machine`, or a kubelet's `/spec/`."""

from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from nodewright.model.machine import MachineInfo
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.machine.check import contradictions

WithSwap: TypeAlias = tuple[MachineInfo, int | None]
"""A machine, and its swap in bytes; None: not said."""


def read_machine_info(path: str | Path) -> WithSwap:
    """The machine that a file with cAdvisor's MachineInfo (JSON) describes.

    Errors: InputError with the first field of a wrong type, or with everything that contradicts itself.
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
