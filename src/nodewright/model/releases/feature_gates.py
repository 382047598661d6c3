"""The feature gates that settings result in, and the rules of their release."""

from collections.abc import Iterator, Mapping

import msgspec

from nodewright.model.releases.release_rules import (
    FeatureGate,
    FeatureStage,
    PodLevelQOS,
    ReleaseRules,
    ReleaseTable,
)
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES

ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"


class FeatureGates(msgspec.Struct, frozen=True):
    """The features that are on in a kubelet, and the rules of its release.

    A gate that the release does not have is off, unless its feature is GA: then only the gate is gone.

    >>> DEFAULT_GATES["MemoryQoS"], DEFAULT_GATES["PodLevelResourceManagers"]
    (True, False)
    >>> resolve_gates({"MemoryQoS": False}).gates["MemoryQoS"]
    False
    """

    enabled: frozenset[str]
    rules: ReleaseRules = NEWEST.rules

    def __getitem__(self, name: str) -> bool:
        """Whether the feature is on; a name that no release has is a bug."""
        assert name in _KNOWN, name
        return name in self.enabled

    @property
    def pod_level_qos(self) -> PodLevelQOS:
        """Whether the pod level decides the QoS class.

        Follows: v1.37, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
        """
        if not self["PodLevelResources"]:
            return PodLevelQOS.NEVER
        is_fixed = self["PodLevelResourcesFixKubeletQOSClass"]
        return PodLevelQOS.WHERE_SUPPORTED if is_fixed else PodLevelQOS.WHERE_SET


class ResolvedGates(msgspec.Struct, frozen=True, kw_only=True):
    """The result of feature gate settings."""

    gates: FeatureGates
    errors: tuple[str, ...] = ()
    """Why the kubelet rejects the settings, as it words it; then `gates` are the defaults."""
    unknown: tuple[str, ...] = ()
    """Names that are not gates of this release."""
    retiring: tuple[FeatureGate, ...] = ()
    """Gates that are set and will be removed: those of GA and of deprecated features."""


def resolve_gates(
    settings: Mapping[str, bool], *, release: ReleaseTable = NEWEST, refuse_unknown: bool = True
) -> ResolvedGates:
    """The features that are on in a release when these gates are set, or why the kubelet rejects the settings.

    A setting by name overrides `AllAlpha` and `AllBeta`, independently of the order.

    Follows: v1.36, component-base/featuregate/feature_gate.go, SetFromMap.
    Departs: names in order, where the kubelet iterates over a map; all errors, where it stops at an unknown name.
        Without ``refuse_unknown``, unknown names are only listed: some distributions do so.

    >>> resolve_gates({"InPlacePodVerticalScaling": False}).errors
    ('cannot set feature gate InPlacePodVerticalScaling to false, feature is locked to true',)
    """
    unknown = tuple(name for name in sorted(settings) if name not in release.gates)
    errors = [f"unrecognized feature gate: {name}" for name in unknown if refuse_unknown]
    known = {release.gates[name]: value for name, value in sorted(settings.items()) if name in release.gates}
    errors += [
        f"cannot set feature gate {gate.name} to {_go(value)}, feature is locked to {_go(gate.default)}"
        for gate, value in known.items()
        if gate.locked and value != gate.default
    ]
    if errors:
        return ResolvedGates(gates=default_gates(release), errors=tuple(errors), unknown=unknown)
    gates = gates_set({gate.name: value for gate, value in known.items()}, release)
    errors += _unmet_dependencies(gates, release)
    if errors:
        return ResolvedGates(gates=default_gates(release), errors=tuple(errors), unknown=unknown)
    retiring = tuple(gate for gate in known if gate.stage in (FeatureStage.GA, FeatureStage.DEPRECATED))
    return ResolvedGates(gates=gates, unknown=unknown, retiring=retiring)


def default_gates(release: ReleaseTable) -> FeatureGates:
    """The features that are on by default in a release."""
    return gates_set({}, release)


def gates_set(settings: Mapping[str, bool], release: ReleaseTable) -> FeatureGates:
    """The features that are on with these settings, locks and dependencies not checked; unknown names do nothing."""
    by_stage = {FeatureStage.ALPHA: settings.get(ALL_ALPHA), FeatureStage.BETA: settings.get(ALL_BETA)}

    def is_on(gate: FeatureGate) -> bool:
        if gate.name in settings:
            return settings[gate.name]
        by_group = None if gate.name in (ALL_ALPHA, ALL_BETA) else by_stage.get(gate.stage)
        return gate.default if by_group is None else by_group

    enabled = frozenset(gate.name for gate in release.gates.values() if is_on(gate))
    return FeatureGates(enabled | _WITHOUT_GATE[release.name], release.rules)


def _unmet_dependencies(gates: FeatureGates, release: ReleaseTable) -> Iterator[str]:
    for gate in release.gates.values():
        off = [
            needed
            for needed in gate.dependencies
            if gate.name in gates.enabled and needed not in gates.enabled
        ]
        if off:
            yield f"{gate.name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"


def _go(value: bool) -> str:  # noqa: FBT001 - the value itself is what is printed
    return "true" if value else "false"


def _without_gate() -> Iterator[tuple[str, frozenset[str]]]:
    last: dict[str, FeatureGate] = {}
    for name, table in RELEASE_TABLES.items():
        last |= table.gates
        gone = last.keys() - table.gates.keys()
        yield (
            name,
            frozenset(each for each in gone if last[each].stage is FeatureStage.GA and last[each].default),
        )


_WITHOUT_GATE = dict(_without_gate())
"""The features of each release that had a gate until they were GA."""

FEATURE_GATES = NEWEST.gates
"""Every gate of the newest release by its name, in order."""

_KNOWN = frozenset(name for table in RELEASE_TABLES.values() for name in table.gates)
"""The gates of all releases."""

DEFAULT_GATES = default_gates(NEWEST)
"""The features that are on by default in the newest release."""
