"""Which objects of manifests are read: those that a label selector chooses, and pods of which custom resources."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from nodewright.documents.formats.object_selection import CustomKind
from nodewright.model.errors import Fault, InputError
from nodewright.model.patterns import lazy_pattern

_PARTS = lazy_pattern(r",(?![^(]*\))")
_SET = lazy_pattern(r"(?P<key>[^\s,()!=]+)\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)")
_EQUALITY = lazy_pattern(r"(?P<key>[^\s,()!=]+)\s*(?P<operator>==|=|!=)\s*(?P<values>[^\s,()!=]*)")
_EXISTENCE = lazy_pattern(r"(?P<operator>!?)(?P<key>[^\s,()!=]+)")


class LabelRequirement(NamedTuple):
    """A requirement of a label selector: the label has one of these values, or any."""

    key: str
    values: frozenset[str] | None
    """None: any value."""
    is_negated: bool

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether an object with these labels meets it."""
        is_met = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return is_met != self.is_negated


class ObjectSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The objects to read."""

    requirements: tuple[LabelRequirement, ...] = ()
    custom_kinds: tuple[CustomKind, ...] = ()
    """Kinds with pod templates besides those of the table."""

    def includes(self, value: Mapping[str, Any]) -> bool:
        """Whether the selector chooses the object."""
        meta = value.get("metadata")
        labels = meta.get("labels") if isinstance(meta, dict) else None
        return all(
            requirement.matches(labels if isinstance(labels, dict) else {})
            for requirement in self.requirements
        )


ALL_OBJECTS = ObjectSelection()


def parsed_selector(text: str) -> tuple[LabelRequirement, ...]:
    """The requirements of a label selector, as kubectl writes it.

    Follows: v1.36, apimachinery/pkg/labels/selector.go, Parse.
    Errors:  InputError.

    >>> [requirement.matches({"app": "web"}) for requirement in parsed_selector("app in (web, db),!canary,app!=web")]
    [True, True, False]
    """
    requirements = []
    for part in filter(None, map(str.strip, _PARTS.split(text))):
        match = _SET.fullmatch(part) or _EQUALITY.fullmatch(part) or _EXISTENCE.fullmatch(part)
        if match is None:
            rule = "must be requirements such as app=web, app!=web, app in (web,db), app, !app"
            raise InputError([Fault(source="--selector", value=text, rule=rule)])
        operator, values = match["operator"], match.groupdict().get("values")
        requirements.append(
            LabelRequirement(
                match["key"],
                None if values is None else frozenset(value.strip() for value in values.split(",")),
                is_negated=operator in ("!", "!=", "notin"),
            )
        )
    return tuple(requirements)
