"""Rules of somebody's own in place of the kubelet's: values with a name, and what is said when they break a law."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A rule under the name by which it is asked for. The kinds of rules stand beside what they decide.

    Errors: ValueError for a name that is the kubelet's own, or that cannot be one.
    """

    name: str
    about: str = field(default="", compare=False)
    """What it does, in a line."""

    kind: ClassVar[str]
    """What it is, in words: `topology policy`."""
    field: ClassVar[str]
    """Where a node profile names it, below `spec.policies`."""
    kubelets: ClassVar[frozenset[str]] = frozenset()
    """The names that the kubelet has in its place."""

    def __post_init__(self) -> None:
        if self.name in self.kubelets:
            rule = "is the name of one of the kubelet's own, which the kubelet's configuration chooses"
            raise ValueError(f"{self.kind} {self.name!r}: {rule}")
        if not _NAME.fullmatch(self.name):
            rule = "a name is of small letters, digits, dots and dashes"
            raise ValueError(f"{self.kind} {self.name!r}: {rule}")


class PolicyError(Exception):
    """A policy that failed, or whose answer broke a law; nothing has come of the answer."""

    def __init__(self, policy: Policy, rule: str) -> None:
        super().__init__(f"{policy.kind} {policy.name}: {rule}")
        self.policy, self.rule = policy, rule


def failure(error: BaseException) -> str:
    """What a policy's function failed with, and where."""
    where, last = "", error.__traceback__
    while last is not None:
        where = f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})"
        last = last.tb_next
    return f"{type(error).__name__}: {error}{where}"


def first_line(text: str | None) -> str:
    """What a function's docstring says of it in a line."""
    return (text or "").strip().partition("\n")[0]
