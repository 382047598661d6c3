"""The feature gates of a release: stage, default, lock and dependencies, as changes to the release before."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec


class FeatureStage(StrEnum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


class FeatureGate(msgspec.Struct, frozen=True):
    """A feature gate; a locked one cannot be set to anything but its default."""

    name: str
    stage: FeatureStage
    default: bool
    locked: bool
    dependencies: tuple[str, ...] = ()


GateTable: TypeAlias = Mapping[str, FeatureGate]
"""The gates of a release by name, in order."""

ON, OFF = True, False
FREE, LOCKED = False, True

GateRows: TypeAlias = Mapping[tuple[FeatureStage, bool, bool], str]
"""Names by (stage, default, locked)."""


def gates_after(before: GateTable, rows: GateRows, *, removed: str = "", dependencies: str = "") -> GateTable:
    """The gates of a release from those of the release before and the rows that are new or differ.

    A line of ``dependencies`` is a gate and the gates that it needs; a gate alone needs none any more.

    >>> gates = gates_after({}, {(FeatureStage.BETA, ON, FREE): "A B"}, dependencies="A B")
    >>> gates["A"].dependencies, gates_after(gates, {}, removed="B").keys()
    (('B',), dict_keys(['A']))
    """
    gates = dict(before)
    for (stage, default, locked), names in rows.items():
        for name in names.split():
            kept = before[name].dependencies if name in before else ()
            gates[name] = FeatureGate(name, stage, default, locked, kept)
    for name, *needed in filter(None, map(str.split, dependencies.splitlines())):
        gates[name] = msgspec.structs.replace(gates[name], dependencies=tuple(needed))
    for name in removed.split():
        del gates[name]
    return dict(sorted(gates.items()))
