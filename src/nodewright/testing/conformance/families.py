"""The families of recorded decisions, and the way from a question to the engine's answer."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

FAMILIES = (
    "quantity",
    "pod-defaults",
    "pod-resources",
    "oom-score",
    "cgroup",
    "container-cgroup",
    "node-allocatable",
    "quota",
    "limitrange",
    "cpu-topology",
    "cpu-assign",
    "cpu-manager",
    "memory-manager",
    "device-manager",
    "topology-merge",
    "checkpoint",
    "predicates",
    "preemption",
    "eviction",
    "kubelet-config",
    "node",
)
"""Every family that is recorded, in the order of reports: from amounts to the whole node."""


class NoEngine(LookupError):  # noqa: N818 - it says what there is not
    """Nothing here answers questions of the family."""


def answer(family: str, question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the engine says to a question of the family, as plain JSON in the shape of `expect`.

    Errors: NoEngine where the family is unknown or nothing answers it yet; what the engine raises is passed on.
    """
    return import_module(_engine(family)).answer(question, machines)


def is_answered(family: str) -> bool:
    """Whether something here answers questions of the family."""
    return family in FAMILIES and find_spec(_module(family)) is not None


def _engine(family: str) -> str:
    if family not in FAMILIES:
        raise NoEngine(f"unknown family {family!r}; known are {', '.join(FAMILIES)}")
    if not is_answered(family):
        raise NoEngine(f"family {family} is not answered yet")
    return _module(family)


def _module(family: str) -> str:
    return f"{__package__}.{family.replace('-', '_')}"
