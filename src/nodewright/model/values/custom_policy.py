"""Custom policies in place of the kubelet's, and the errors when they fail or break a rule."""

import re
from typing import ClassVar

import msgspec

from nodewright.model.patterns import lazy_pattern

_NAME = lazy_pattern(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)


class CustomPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A custom policy and its name. Its kinds are defined beside what they decide.

    Errors: ValueError for a name that the kubelet uses, or that is invalid.
    """

    name: str
    description: str = ""
    """A one-line description."""

    kind: ClassVar[str]
    """The kind in words: `topology policy`."""
    profile_field: ClassVar[str]
    """The field of a node profile that names it, below `spec.policies`."""
    builtin_names: ClassVar[frozenset[str]] = frozenset()
    """The names of the kubelet's policies of this kind."""

    def __post_init__(self) -> None:
        if self.name in self.builtin_names:
            rule = "is the name of a kubelet policy, which the kubelet's configuration selects"
            raise ValueError(f"{self.kind} {self.name!r}: {rule}")
        if not _NAME.fullmatch(self.name):
            rule = "a name consists of lowercase letters, digits, dots and dashes"
            raise ValueError(f"{self.kind} {self.name!r}: {rule}")


class CustomPolicyError(Exception):
    """A custom policy that failed or returned an invalid answer; the answer is discarded."""

    def __init__(self, policy: CustomPolicy, rule: str) -> None:
        super().__init__(f"{policy.kind} {policy.name}: {rule}")
        self.policy, self.rule = policy, rule


def failure_text(error: BaseException) -> str:
    """The error of a policy's function, with file and line."""
    place, frame = "", error.__traceback__
    while frame is not None:
        place = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {error}{place}"


def docstring_summary(text: str | None) -> str:
    """The first line of a function's docstring."""
    return (text or "").strip().partition("\n")[0]
