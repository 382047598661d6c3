"""What stays as it is while devices come and go: the machine's NUMA nodes and the device plugins."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from nodewright.model.machine import NUMANode
from nodewright.model.profile import Device
from nodewright.values.idset import NUMASet


@dataclass(frozen=True, slots=True)
class PluginError:
    """What a plugin answers instead of devices."""

    text: str


Preference: TypeAlias = Callable[[frozenset[str], frozenset[str], int], Iterable[str] | PluginError]
"""Which devices a plugin would like to hand out, of those available, with those that must be among them, so many.

It is held to nothing: what it names in vain is passed over, what it lacks is filled up.
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """How the plugin of a resource answers."""

    preference: Preference | None = None
    """None: it does not offer to be asked, or nobody knows what it would say."""
    refusal: str = ""
    """The error with which it answers when it is told to hand out devices; empty: it does as told."""
    is_asked: bool = False
    """Whether it is really there: what it prefers, it has to be asked (`state.Asking`)."""


def lowest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """Those that must be included and the lowest others, in the order of their text.

    >>> lowest(frozenset({"gpu-1", "gpu-2", "gpu-10"}), frozenset({"gpu-2"}), 2)
    ['gpu-2', 'gpu-1']
    """
    return _filled_up(must_include, sorted(available - must_include), size)


def highest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """Those that must be included and the highest others, in the order of their text."""
    return _filled_up(must_include, sorted(available - must_include, reverse=True), size)


ASKED = "asked"
PREFERENCES: Mapping[str, Preference | None] = {
    "absent": None,
    "lowest": lowest,
    "highest": highest,
    ASKED: None,
}
"""What plugins are known to prefer, by the names that a node's description has for it; what those prefer that were
`asked` is known only where their answers are at hand, as in journals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceManager:
    """The device manager of a machine."""

    numa: NUMASet
    """The NUMA nodes of the machine; devices may name others, which do not count."""
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    """By resource."""
    skips_claimed: bool = True
    """The gate DRAExtendedResource: leave to resource claims what they provide."""
    follows_defects: bool = True
    """Whether to do wrong where the kubelet does."""

    @classmethod
    def of(
        cls,
        topology: Sequence[NUMANode],
        devices: Collection[str] | Mapping[str, tuple[Device, ...]],
        preferred_allocation: Mapping[str, str] | None = None,
        *,
        skips_claimed: bool = True,
        follows_defects: bool = True,
    ) -> Self:
        """The manager of these resources, whose plugins do as told and prefer the lowest ids if nothing else is said.

        Errors: KeyError for the name of a preference that is not among PREFERENCES.
        """
        preferred = preferred_allocation or {}
        return cls(
            numa=NUMASet.from_ids(node.node_id for node in topology),
            plugins={name: plugin_named(preferred.get(name, "lowest")) for name in devices},
            skips_claimed=skips_claimed,
            follows_defects=follows_defects,
        )


def plugin_named(preference: str) -> Plugin:
    """A plugin that does as told and prefers what the name says.

    Errors: KeyError for a name that is not among PREFERENCES.
    """
    return Plugin(PREFERENCES[preference], is_asked=preference == ASKED)


def _filled_up(must_include: frozenset[str], others: list[str], size: int) -> list[str]:
    return [*sorted(must_include), *others[: max(size - len(must_include), 0)]]
