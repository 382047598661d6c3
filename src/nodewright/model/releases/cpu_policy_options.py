"""The options of the CPU manager's static policy: one table of names, stages by release, and exclusions."""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

import msgspec


class PolicyOption(msgspec.Struct, frozen=True, kw_only=True):
    """A key of `cpuManagerPolicyOptions`."""

    name: str
    stages: Mapping[str, str]
    """The maturity from a release on: `Alpha`, `Beta`, or "" for stable."""
    excludes: tuple[str, ...] = ()
    """Options that cannot be on at the same time."""


class CPUOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the static policy that are on.

    This is the table of all options: name, stages and exclusions are declared at each field, and `POLICY_OPTIONS` is
    derived from it. Pairs of exclusive options are reported in the order of the rows.

    Follows: v1.36, cpumanager/policy_options.go, StaticPolicyOptions, alphaOptions, betaOptions, stableOptions.
    """

    full_pcpus_only: Annotated[
        bool,
        PolicyOption(
            name="full-pcpus-only",
            stages={"1.32": "Beta", "1.33": ""},
            excludes=("distribute-cpus-across-cores",),
        ),
    ] = False
    """Allocate whole cores only."""
    distribute_across_numa: Annotated[
        bool,
        PolicyOption(
            name="distribute-cpus-across-numa",
            stages={"1.32": "Alpha", "1.33": "Beta"},
            excludes=("distribute-cpus-across-cores",),
        ),
    ] = False
    """Allocate equal shares from several NUMA nodes where one does not suffice."""
    align_by_socket: Annotated[bool, PolicyOption(name="align-by-socket", stages={"1.32": "Alpha"})] = False
    """Count NUMA nodes of one socket as aligned."""
    distribute_across_cores: Annotated[
        bool, PolicyOption(name="distribute-cpus-across-cores", stages={"1.32": "Alpha"})
    ] = False
    """Allocate CPUs of different cores rather than whole cores."""
    strict_reservation: Annotated[
        bool,
        PolicyOption(name="strict-cpu-reservation", stages={"1.32": "Alpha", "1.33": "Beta", "1.35": ""}),
    ] = False
    """Exclude the reserved CPUs from the shared pool, too."""
    prefer_uncore_cache: Annotated[
        bool,
        PolicyOption(
            name="prefer-align-cpus-by-uncorecache",
            stages={"1.32": "Alpha", "1.34": "Beta", "1.36": ""},
            excludes=("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
        ),
    ] = False
    """Allocate CPUs that share a last-level cache where possible."""

    @classmethod
    def of(cls, names: Collection[str]) -> Self:
        """The options of these names on, all others off."""
        return cls(**{field_name: option.name in names for field_name, option in _OPTION_BY_FIELD.items()})

    def by_name(self) -> dict[str, bool]:
        """Whether each option of the policy is on, in the order of the table."""
        return {option.name: getattr(self, field_name) for field_name, option in _OPTION_BY_FIELD.items()}


_OPTION_BY_FIELD: Mapping[str, PolicyOption] = {
    name: row.__metadata__[0] for name, row in CPUOptions.__annotations__.items()
}
POLICY_OPTIONS: Mapping[str, PolicyOption] = {option.name: option for option in _OPTION_BY_FIELD.values()}
"""All options of the static policy by name."""


def cpu_option_stages(release: str, before: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The maturity of each option in a release; ``before``: that in the release before it.

    >>> cpu_option_stages("1.33", {"align-by-socket": "Alpha"})["full-pcpus-only"]
    ''
    """
    changed = {name: option.stages for name, option in POLICY_OPTIONS.items() if release in option.stages}
    return {**(before or {}), **{name: stages[release] for name, stages in changed.items()}}
