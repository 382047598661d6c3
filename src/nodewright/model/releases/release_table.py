"""The releases with rules of their own, each with its feature gates and rules, and which of them is applied to each release.

A new release is a module like `v1_37` and a row here.
"""

import re
from collections.abc import Mapping

import msgspec

from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases import v1_32, v1_33, v1_34, v1_35, v1_36, v1_37
from nodewright.model.releases.release_rules import ReleaseTable

_SHAPE = lazy_pattern(
    r"v?(?P<major>[0-9]{1,9})\.(?P<minor>[0-9]{1,9})(?:\.(?P<patch>[0-9]{1,9}))?(?P<rest>(?:[-+][0-9A-Za-z.+-]*)?)",
    re.ASCII,
)


RELEASE_TABLES: Mapping[str, ReleaseTable] = {
    release.name: release
    for release in (
        v1_32.RELEASE,
        v1_33.RELEASE,
        v1_34.RELEASE,
        v1_35.RELEASE,
        v1_36.RELEASE,
        v1_37.RELEASE,
    )
}
"""The releases with rules of their own by name, oldest first."""

NEWEST = [*RELEASE_TABLES.values()][-1]
"""The release of nodes that name none."""

RELEASES_WITH_RULES = tuple(RELEASE_TABLES)
"""The releases with their own rules, oldest first."""


class ReleaseError(ValueError):
    """A text that is not a Kubernetes release."""


class Release(msgspec.Struct, frozen=True):
    """A release as `kubelet --version` or a Node's `kubeletVersion` names it.

    >>> Release.parse("v1.35.4+k3s1").minor_release
    '1.35'
    """

    text: str
    major: int
    minor: int
    patch: int | None = None
    suffix: str = ""
    """The suffix of a distribution or pre-release, e.g. `+k3s1` or `-rc.1`."""

    @classmethod
    def parse(cls, text: str) -> "Release":
        """The release that a text such as `v1.36.2`, `1.36` or `1.35.4+k3s1` names.

        Errors: ReleaseError.
        """
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise ReleaseError(f"{text!r} is not a Kubernetes release such as v1.36.2")
        patch = match["patch"]
        return cls(
            text.strip(),
            int(match["major"]),
            int(match["minor"]),
            None if patch is None else int(patch),
            match["rest"],
        )

    @property
    def minor_release(self) -> str:
        """Major and minor number, which determine the rules."""
        return f"{self.major}.{self.minor}"


class AppliedRules(msgspec.Struct, frozen=True):
    """The release with the rules that are applied; reports name it."""

    rules_of: str
    release: Release

    @property
    def table(self) -> ReleaseTable:
        """The gates and rules that are applied."""
        return RELEASE_TABLES[self.rules_of]

    @property
    def are_of_other_release(self) -> bool:
        """Whether the release has no rules of its own: a warning, and an error with strict settings."""
        return self.rules_of != self.release.minor_release


def applied_rules(release: Release) -> AppliedRules:
    """The rules applied for the release: its own, or those of the nearest release with rules.

    >>> applied_rules(Release.parse("1.35.4+k3s1")).rules_of, applied_rules(Release.parse("1.31.1")).rules_of
    ('1.35', '1.32')
    """
    version = (release.major, release.minor)
    ruled = [(tuple(map(int, name.split("."))), name) for name in RELEASES_WITH_RULES]
    # The newest release that is not newer; for releases older than all, the oldest.
    applied = next((name for numbers, name in reversed(ruled) if numbers <= version), RELEASES_WITH_RULES[0])
    return AppliedRules(applied, release)


def release_warning(rules: AppliedRules) -> str | None:
    """A warning that another release's rules are applied, or None if they are not."""
    if not rules.are_of_other_release:
        return None
    text = (
        f"Kubernetes {rules.release.text} has no rules of its own here: answers are those of {rules.rules_of}"
    )
    return f"{text}; {_BEFORE_ALL}" if rules.rules_of == RELEASES_WITH_RULES[0] else text


_BEFORE_ALL = (
    "before 1.32 pods have no pod-level resources, and the CPU policy options strict-cpu-reservation and "
    "prefer-align-cpus-by-uncorecache do not exist"
)
"""Follows: v1.36, pkg/features/kube_features.go, PodLevelResources; cpumanager/policy_options.go."""


def release_table(text: str) -> ReleaseTable:
    """The gates and rules that are applied for a release; those of the newest one for a text that is no release."""
    try:
        return applied_rules(Release.parse(text)).table
    except ReleaseError:
        return NEWEST


def reported_release(version: object) -> str:
    """The minor release of a Node's `kubeletVersion`; the newest one with rules if that is no release.

    >>> reported_release("v1.33.4-eks-1a2b3c"), reported_release(None)
    ('1.33', '1.37')
    """
    try:
        return Release.parse(version).minor_release if isinstance(version, str) else NEWEST.name
    except ReleaseError:
        return NEWEST.name
