"""Why a quota forbids something: facts with their amounts, as `status.used` and `spec.hard` have them."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.model.quota_objects import ScopeTerm
from nodewright.values.quantity import ZERO, Quantity


class Unspecified(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that must be requested or limited, and the containers that do not, by name."""

    resource: str
    """As a quota names it: `requests.cpu`, `limits.memory`, …"""
    containers: tuple[str, ...]


class MustSpecify(msgspec.Struct, frozen=True, kw_only=True):
    """A quota on cpu or memory is for this pod, and not every container says what it needs of them."""

    quota: str
    unspecified: tuple[Unspecified, ...]


class StatusUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """What is in use of a quota's resources has not been worked out yet."""

    quota: str
    resources: tuple[str, ...]
    """All the resources of the quota that the object's kind is charged for."""


class NegativeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The object would use less than nothing."""

    usage: tuple[tuple[str, Quantity], ...]


class PriorObjectMissing(msgspec.Struct, frozen=True, kw_only=True):
    """An update cannot be charged without the object as it was."""


class NoQuotaForResources(msgspec.Struct, frozen=True, kw_only=True):
    """The API server is set up so that these resources cannot be used without a quota for them."""

    usage: tuple[tuple[str, Quantity], ...]


class NoQuotaForScopes(msgspec.Struct, frozen=True, kw_only=True):
    """The API server is set up so that objects in these scopes are not let in without a quota for the scope."""

    terms: tuple[ScopeTerm, ...]


class Overrun(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of which a quota has less left than is charged."""

    resource: str
    requested: Quantity
    used: Quantity | None
    """None: the quota's status does not name it."""
    limited: Quantity

    @property
    def missing(self) -> Quantity:
        """How much would have to be freed, or added to the quota."""
        return (self.used or ZERO) + self.requested - self.limited


class QuotaExceeded(msgspec.Struct, frozen=True, kw_only=True):
    """A quota has less left than the object would be charged; all its resources that fall short are listed."""

    quota: str
    overruns: tuple[Overrun, ...]


class SelectorRule(StrEnum):
    """A rule for scope selectors."""

    OPERATOR = "known operator"
    VALUES_NEEDED = "In and NotIn need values"
    NO_VALUES = "Exists and DoesNotExist have no values"
    LABEL_VALUE = "values are label values"


class SelectorFault(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a scope selector breaks."""

    rule: SelectorRule
    index: int = 0
    """The place of the value that breaks it, if one does."""


class UnreadableScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope selector that cannot be evaluated, and why: at least one fault."""

    term: ScopeTerm
    faults: tuple[SelectorFault, ...]


class QuotaUnreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A scope selector of a quota cannot be evaluated."""

    quota: str
    scope: UnreadableScope


QuotaReason: TypeAlias = (
    MustSpecify
    | StatusUnknown
    | NegativeUsage
    | PriorObjectMissing
    | NoQuotaForResources
    | NoQuotaForScopes
    | QuotaExceeded
    | QuotaUnreadable
)
"""Why the API server refuses an object on account of quotas."""
