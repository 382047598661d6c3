"""Faults of a kubelet configuration: the field and the kubelet's error."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from nodewright.model.errors import Fault, InputError


class ConfigStage(StrEnum):
    """When the kubelet finds a fault: it stops at the first stage with one."""

    DECODING = "decoding"
    """The file cannot be decoded."""
    GATES = "gates"
    """Invalid feature gates: the kubelet panics."""
    VALIDATION = "validation"
    """Values that validation rejects."""
    STARTUP = "startup"
    """Values that fail while the kubelet sets up its managers."""


class ConfigFault(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why the kubelet does not start with a configuration."""

    stage: ConfigStage
    text: str
    """The kubelet's error."""
    path: str
    """The field, e.g. `evictionHard[memory.available]`; of several, the one to change first."""
    value: object = None
    """The value of the field; None: not shown."""


class KubeletConfigError(InputError):
    """A configuration with which the kubelet does not start, with all its faults."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        super().__init__([Fault(path=fault.path, value=fault.value, rule=fault.text) for fault in faults])
