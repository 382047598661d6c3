"""Kubernetes releases, and whose rules are applied for each."""

import re
from dataclasses import dataclass

_SHAPE = re.compile(
    r"v?(?P<major>[0-9]{1,9})\.(?P<minor>[0-9]{1,9})(?:\.(?P<patch>[0-9]{1,9}))?(?P<rest>(?:[-+][0-9A-Za-z.+-]*)?)",
    re.ASCII,
)
RULED = ("1.36",)
"""The releases that have rules of their own, oldest first."""


class ReleaseError(ValueError):
    """A text that is no release of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release as `kubelet --version` or a Node's `kubeletVersion` names it.

    >>> Release.parse("v1.35.4+k3s1").minor_release
    '1.35'
    """

    text: str
    major: int
    minor: int
    patch: int | None = None
    rest: str = ""
    """What a distribution or a preview adds, e.g. `+k3s1` or `-rc.1`."""

    @classmethod
    def parse(cls, text: str) -> "Release":
        """The release that a text such as `v1.36.2`, `1.36` or `1.35.4+k3s1` names.

        Errors: ReleaseError.
        """
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise ReleaseError(f"{text!r} is no release of Kubernetes such as v1.36.2")
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
        """Major and minor number, which is what rules go by."""
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class RulesOf:
    """Whose rules are applied. Answers name them, so that nobody takes them for another release's."""

    rules_of: str
    release: Release

    @property
    def are_foreign(self) -> bool:
        """Whether the release has no rules of its own: a warning, and an error where people are strict."""
        return self.rules_of != self.release.minor_release


def rules_of(release: Release) -> RulesOf:
    """The rules applied for the release: its own, or those of the nearest release that has some.

    >>> rules_of(Release.parse("1.36.0")).are_foreign, rules_of(Release.parse("1.35.4+k3s1"))
    (False, RulesOf(rules_of='1.36', release=Release(text='1.35.4+k3s1', major=1, minor=35, patch=4, rest='+k3s1')))
    """
    asked = (release.major, release.minor)
    ruled = [(tuple(map(int, name.split("."))), name) for name in RULED]
    # The newest one that is not newer; for what is older than all, the oldest.
    best = next((name for numbers, name in reversed(ruled) if numbers <= asked), RULED[0])
    return RulesOf(best, release)
