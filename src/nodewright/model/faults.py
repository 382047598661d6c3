"""What is wrong with a node's configuration, in the kubelet's own words and with the field they are about."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """When the kubelet finds a fault: it gets no further than the first stage that has one."""

    DECODING = "decoding"
    """The file does not say what its fields should be."""
    GATES = "gates"
    """Feature gates that cannot be set so: the kubelet panics."""
    VALIDATION = "validation"
    """Values that are not allowed."""
    STARTUP = "startup"
    """Values that turn out wrong when the kubelet sets itself up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFault:
    """One reason why the kubelet does not start with a configuration."""

    stage: Stage
    text: str
    """The kubelet's own text."""
    path: str
    """The field, e.g. `evictionHard[memory.available]`; of several the one to change first."""
    value: object = None
    """What stands there; None: nothing worth showing."""


class ConfigError(ValueError):
    """A configuration that the kubelet would not start with, with all that is wrong with it."""

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        super().__init__("; ".join(fault.text for fault in faults))
        self.faults = tuple(faults)
