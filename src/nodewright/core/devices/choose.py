"""Which of the free devices? Those of the pod's init containers first, then aligned ones, and so on."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from nodewright.core.devices.evidence import device_stock
from nodewright.core.devices.manager import DeviceManager, PluginError
from nodewright.core.devices.state import NONE, Asking, DeviceList, DeviceState, Ids
from nodewright.model.device_reasons import (
    DevicePluginMissing,
    DevicePreferenceFailed,
    DeviceRefusal,
    DevicesMiscounted,
    DeviceTier,
    NotEnoughDevices,
    PreferenceWanted,
)
from nodewright.values.idset import NUMASet

Why: TypeAlias = Literal["reuse", "aligned", "preferred", "unaligned", "withoutTopology"]


class Wanted(msgspec.Struct, frozen=True):
    """So many devices of a resource for a container, on these NUMA nodes if possible."""

    resource: str
    count: int
    affinity: NUMASet | None
    reusable: Ids
    """What the pod's init containers leave."""
    container: str = ""


class Choice(msgspec.Struct, frozen=True):
    """The devices picked, rank by rank; with a refusal, those picked before it."""

    picked: Ids
    tiers: tuple[DeviceTier, ...]
    refusal: DeviceRefusal | None = None


def choose(manager: DeviceManager, state: DeviceState, listed: DeviceList, wanted: Wanted) -> Choice:
    """The devices for a container that holds none yet.

    Follows: v1.36, devicemanager/manager.go, devicesToAllocate.
    Departs: within a rank the lowest ids, in the order of their text; the kubelet walks a map in random order.
    """
    picking = _Picking(wanted.count)
    refusal = _pick(manager, state, listed, wanted, picking)
    return Choice(frozenset(picking.picked), tuple(picking.tiers), refusal)


class _Picking:
    """What was picked so far, and how many are missing."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.picked: set[str] = set()
        self.tiers: list[DeviceTier] = []

    def complete_with(self, why: Why, devices: Ids) -> bool:
        """Whether none is missing any more, after taking as many of the devices as are."""
        candidates = sorted(devices - self.picked)
        # A negative number is never reached: everything is taken.
        taken = candidates[: self.missing] if self.missing > 0 else candidates
        if taken:
            self.tiers.append(DeviceTier(why=why, candidates=tuple(candidates), taken=tuple(taken)))
            self.picked.update(taken)
            self.missing -= len(taken)
        return self.missing == 0


def _pick(
    manager: DeviceManager, state: DeviceState, listed: DeviceList, wanted: Wanted, picking: _Picking
) -> DeviceRefusal | None:
    reusable = wanted.reusable if manager.follows_defects else wanted.reusable & listed.healthy
    if picking.complete_with("reuse", reusable):
        return None
    available = state.free(wanted.resource) - picking.picked
    if len(available) < picking.missing:
        return NotEnoughDevices(
            stock=device_stock(state, wanted.resource),
            requested=wanted.count,
            missing=picking.missing,
            available=len(available),
        )
    aligned, unaligned, placeless = _by_affinity(listed, available, wanted.affinity)
    enough_aligned = picking.missing < len(aligned)
    if not enough_aligned and picking.complete_with("aligned", aligned):
        return None
    among = aligned if enough_aligned else available
    preferred = _preferred(manager, state.asking, wanted, among, frozenset(picking.picked))
    if not isinstance(preferred, frozenset):
        return preferred
    if enough_aligned:
        done = picking.complete_with("preferred", preferred) or picking.complete_with("aligned", aligned)
    else:
        done = (
            picking.complete_with("preferred", preferred)
            or picking.complete_with("unaligned", unaligned)
            or picking.complete_with("withoutTopology", placeless)
        )
    if done:
        return None
    got = wanted.count - picking.missing
    return DevicesMiscounted(resource=wanted.resource, requested=wanted.count, got=got)


def _by_affinity(listed: DeviceList, available: Ids, affinity: NUMASet | None) -> tuple[Ids, Ids, Ids]:
    """The devices with a NUMA node in the affinity, those with others only, those without.

    Follows: v1.36, devicemanager/manager.go, filterByAffinity: without an agreement all are in the last part.
    """
    if affinity is None or not listed.has_topology:
        return NONE, NONE, available
    masks = listed.masks
    aligned = frozenset([name for name in available if masks[name] & affinity.mask])
    placeless = available & listed.placeless
    return aligned, available - aligned - placeless, placeless


def _preferred(
    manager: DeviceManager, asking: Asking, wanted: Wanted, among: Ids, so_far: Ids
) -> Ids | DevicePluginMissing | DevicePreferenceFailed | PreferenceWanted:
    """Those devices that the plugin prefers.

    Follows: v1.36, devicemanager/manager.go, callGetPreferredAllocationIfAvailable.
    """
    plugin = manager.plugins.get(wanted.resource)
    if plugin is None:
        return DevicePluginMissing(resource=wanted.resource, during="preference")
    if plugin.is_asked:
        answer: Iterable[str] | PluginError | None = asking.answers.get((wanted.container, wanted.resource))
        if answer is None and asking.can_ask:
            return PreferenceWanted(
                resource=wanted.resource,
                container=wanted.container,
                available=tuple(sorted(among | so_far)),
                must_include=tuple(sorted(so_far)),
                size=wanted.count,
            )
    else:
        answer = plugin.preference and plugin.preference(among | so_far, so_far, wanted.count)
    if isinstance(answer, PluginError):
        stranded = tuple(sorted(so_far)) if manager.follows_defects else ()
        return DevicePreferenceFailed(resource=wanted.resource, error=answer.text, stranded=stranded)
    return among.intersection(answer or ())
