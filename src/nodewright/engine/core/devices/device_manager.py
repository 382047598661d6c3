"""The immutable part of the device manager: the machine's NUMA nodes and the device plugins."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Self, TypeAlias

import msgspec

from nodewright.model.hardware.machine_info import NUMANode
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.idset import NUMASet


class DevicePluginError(msgspec.Struct, frozen=True):
    """An error that a plugin returns."""

    text: str


PreferenceFunction: TypeAlias = Callable[
    [frozenset[str], frozenset[str], int], Iterable[str] | DevicePluginError
]
"""GetPreferredAllocation of a plugin: the preferred devices, given the available ids, the ids that must be included
and the number of devices.

The result is not binding: unknown ids are ignored, and missing devices are chosen without the plugin.
"""


class PluginBehavior(msgspec.Struct, frozen=True):
    """The behavior of the device plugin of a resource."""

    preference: PreferenceFunction | None = None
    """None: the plugin does not implement GetPreferredAllocation, or its preference is unknown."""
    allocate_error: str = ""
    """The error that Allocate returns; empty: it succeeds."""
    is_live: bool = False
    """Whether the plugin is running, and its preferences are queried (`PreferredAllocations`)."""


def lowest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """The devices that must be included and the lowest others, in the order of their text.

    >>> lowest(frozenset({"gpu-1", "gpu-2", "gpu-10"}), frozenset({"gpu-2"}), 2)
    ['gpu-2', 'gpu-1']
    """
    return _filled_up(must_include, sorted(available - must_include), size)


def highest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """The devices that must be included and the highest others, in the order of their text."""
    return _filled_up(must_include, sorted(available - must_include, reverse=True), size)


ASK_PLUGIN = "asked"
PREFERENCES: Mapping[str, PreferenceFunction | None] = {
    "absent": None,
    "lowest": lowest,
    "highest": highest,
    ASK_PLUGIN: None,
}
"""Preferences of plugins by their names in a node profile; the preferences of `asked` plugins are known only if their
responses are recorded, as in journals."""


class DeviceManager(msgspec.Struct, frozen=True, kw_only=True):
    """The device manager of a machine."""

    numa: NUMASet
    """The NUMA nodes of the machine; devices may name others, which do not count."""
    plugins: Mapping[str, PluginBehavior] = msgspec.field(default_factory=dict)
    """The plugins by resource."""
    skips_claimed_resources: bool = True
    """Whether resources that resource claims provide are skipped, by release and the gate DRAExtendedResource."""
    hints_from_hosts_only: bool = True
    """Whether hints combine only NUMA nodes that have such devices; else all NUMA nodes."""
    follows_defects: bool = True
    """Whether the kubelet's known defects are reproduced."""

    @classmethod
    def of(
        cls,
        topology: Sequence[NUMANode],
        devices: Collection[str] | Mapping[str, tuple[Device, ...]],
        preferred_allocation: Mapping[str, str] | None = None,
        *,
        gates: FeatureGates = DEFAULT_GATES,
        follows_defects: bool = True,
    ) -> Self:
        """The manager of these resources; their plugins never fail, and prefer the lowest ids by default.

        Errors: KeyError for the name of a preference that is not among PREFERENCES.
        """
        preferred = preferred_allocation or {}
        return cls(
            numa=NUMASet.from_ids(node.node_id for node in topology),
            plugins={name: plugin_with_preference(preferred.get(name, "lowest")) for name in devices},
            skips_claimed_resources=gates["DRAExtendedResource"] and gates.rules.devices_of_claims_skipped,
            hints_from_hosts_only=gates.rules.device_hints_from_hosts_only,
            follows_defects=follows_defects,
        )


def plugin_with_preference(preference: str) -> PluginBehavior:
    """A plugin that never fails, with the preference of this name.

    Errors: KeyError for a name that is not among PREFERENCES.
    """
    return PluginBehavior(PREFERENCES[preference], is_live=preference == ASK_PLUGIN)


def _filled_up(must_include: frozenset[str], others: list[str], size: int) -> list[str]:
    return [*sorted(must_include), *others[: max(size - len(must_include), 0)]]
