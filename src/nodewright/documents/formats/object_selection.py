"""Which objects of manifests are read: those that a label selector chooses, and pods of which custom resources."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

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


class TemplatePath(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects of a kind have a pod template."""

    path: str
    replicas: tuple[str, ...] = ()
    """The fields whose product is the number of pods: in the list item or member of the path, or from `spec` on."""
    form: str = "template"
    """What is there: a pod template, or something that a controller makes pods of (`custom_pod_forms`)."""
    leader: str = ""
    """The template of the first pod of each group, which then is none of these."""
    claims: str = "spec.volumeClaimTemplates"
    """The templates of the claims that the controller adds to the pods as volumes."""


class CustomKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of custom resources with pod templates; without a group of any group."""

    kind: str
    pods: tuple[TemplatePath, ...]
    group: str | None = None


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


def parsed_template_path(text: str) -> CustomKind:
    """The kind of an option such as `Rollout=spec.template` or `Rollout.argoproj.io=spec.template`.

    Errors: InputError.
    """
    name, separator, path = text.partition("=")
    kind, _, group = name.partition(".")
    if not separator or not kind or not all(path.split(".")):
        rule = "must be KIND=PATH, e.g. Rollout=spec.template or JobSet=spec.replicatedJobs[*].template.spec.template"
        raise InputError([Fault(source="--template-path", value=text, rule=rule)])
    return CustomKind(
        kind=kind, group=group or None, pods=(TemplatePath(path=path, replicas=("spec.replicas",)),)
    )
