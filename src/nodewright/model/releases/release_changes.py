"""The changes between two releases, each of which can be made alone; the history of gates; flags that are gone.

The rows stand in the module of each release (`v1_36.CHANGES`).
"""

from collections.abc import Collection, Iterator

import msgspec

from nodewright.model.releases.release_rules import FeatureGate, ReleaseChange, ReleaseTable, RemovedFlag
from nodewright.model.releases.release_table import RELEASE_TABLES


def changes_between(start: str, end: str) -> tuple[ReleaseChange, ...]:
    """The changes from one release to another, oldest first; of a downgrade, those that it takes back.

    >>> [change.since for change in changes_between("1.34", "1.33")] == ["1.34"] * 10
    True
    >>> changes_between("1.35", "1.35")
    ()
    """
    names = list(RELEASE_TABLES)
    low, high = sorted((names.index(start), names.index(end)))
    return tuple(change for name in names[low + 1 : high + 1] for change in RELEASE_TABLES[name].changes)


def with_change(table: ReleaseTable, change: ReleaseChange, *, applied: bool) -> ReleaseTable:
    """The release with this change alone made, or taken back; gates have no dependencies then."""
    names = list(RELEASE_TABLES)
    source = RELEASE_TABLES[change.since if applied else names[names.index(change.since) - 1]]
    gates: dict[str, FeatureGate] = {
        name: msgspec.structs.replace(gate, dependencies=()) for name, gate in table.gates.items()
    }
    for name in change.gates:
        gates.pop(name, None)
        if name in source.gates:
            gates[name] = msgspec.structs.replace(source.gates[name], dependencies=())
    rules = msgspec.structs.replace(
        table.rules, **{name: getattr(source.rules, name) for name in change.rules}
    )
    return msgspec.structs.replace(table, gates=dict(sorted(gates.items())), rules=rules)


class GateHistory(msgspec.Struct, frozen=True):
    """A feature gate in the releases: the text of each change, by release."""

    name: str
    states: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The states and the releases from which on they hold.

        >>> gate_history("SidecarContainers").text()
        'SidecarContainers: BETA, on in 1.32; GA, locked to on since 1.33; unknown since 1.37'
        """
        first, *others = self.states
        parts = [f"{first[1]} in {first[0]}", *(f"{state} since {release}" for release, state in others)]
        return f"{self.name}: {'; '.join(parts)}"


def gate_history(name: str) -> GateHistory:
    """The states of a gate; a name that no release has is unknown in all."""
    return GateHistory(name, tuple(_states(name)))


def unknown_flags(names: Collection[str], release: str) -> tuple[RemovedFlag, ...]:
    """Those of the flags that this release no longer has.

    Follows: v1.36, cmd/kubelet/app/options/options.go, AddFlags.

    >>> [flag.name for flag in unknown_flags(["config", "pod-infra-container-image"], "1.35")]
    ['pod-infra-container-image']
    """
    order = list(RELEASE_TABLES)
    return tuple(
        flag
        for table in list(RELEASE_TABLES.values())[: order.index(release) + 1]
        for flag in table.removed_flags
        if flag.name in names
    )


def _states(name: str) -> Iterator[tuple[str, str]]:
    last = None
    for release, table in RELEASE_TABLES.items():
        gate = table.gates.get(name)
        state = "unknown" if gate is None else _state(gate)
        if state != last:
            yield release, state
        last = state


def _state(gate: FeatureGate) -> str:
    switch = "on" if gate.default else "off"
    return f"{gate.stage}, {'locked to ' if gate.locked else ''}{switch}"
