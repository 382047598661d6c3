"""A violation of one of the API server's validation rules, and the validation of metadata."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from nodewright.model.errors import Fault
from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    dns1123_subdomain_errors,
    label_key_errors,
    label_value_errors,
)
from nodewright.model.kubernetes.objects import Container, ObjectMeta, OwnerReference, PodSpec
from nodewright.model.values.bounded_cache import MAX_TEXT_LENGTH, cached_texts


class ErrorType(StrEnum):
    """The API server's type of a field error.

    Follows: v1.36, apimachinery/pkg/util/validation/field/errors.go, ErrorType.
    """

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    DUPLICATE = "Duplicate value"
    NOT_SUPPORTED = "Unsupported value"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "Not found"
    TOO_MANY = "Too many"
    TOO_LONG = "Too long"


T = TypeVar("T")
_MAX_ANNOTATIONS = 256 * 1024

ShownValue: TypeAlias = str | int | tuple[str, ...] | list[Any] | dict[str, Any]
"""A value as displayed: structures and lists as JSON, an empty tuple as null."""


class Violation(msgspec.Struct, frozen=True):
    """A field, the error type, the value (None: not shown) and the broken rule, if the type alone is not enough."""

    path: str
    type: ErrorType
    value: ShownValue | None = None
    rule: str = ""


def violation_fault(violation: Violation) -> Fault:
    """The violation as a fault of an input; its text is the API server's.

    Follows: v1.36, apimachinery/pkg/util/validation/field/errors.go, Error.ErrorBody.
    """
    error, value = str(violation.type), violation.value
    if isinstance(value, tuple | list | dict):  # as Go prints it; an absent list is null
        import json  # noqa: PLC0415 - start-up time

        json_text = json.dumps(
            value or None if isinstance(value, tuple) else value, ensure_ascii=False, separators=(",", ":")
        )
        error, value = f"{error}: {json_text}", None
    return Fault(path=violation.path, error=error, value=value, rule=violation.rule)


def invalid(path: str, value: ShownValue, rule: str) -> Violation:
    """A value that breaks a rule."""
    return Violation(path, ErrorType.INVALID, value, rule)


def required(path: str, rule: str = "") -> Violation:
    """A required value is missing."""
    return Violation(path, ErrorType.REQUIRED, None, rule)


def duplicate(path: str, value: str | int) -> Violation:
    """The value is already used."""
    return Violation(path, ErrorType.DUPLICATE, value)


def forbidden(path: str, rule: str) -> Violation:
    """The field must not be set."""
    return Violation(path, ErrorType.FORBIDDEN, None, rule)


def not_supported(path: str, value: ShownValue, supported: Iterable[str]) -> Violation:
    """The value is not one of the supported ones."""
    values = ", ".join(f'"{name}"' for name in supported)
    return Violation(path, ErrorType.NOT_SUPPORTED, value, f"supported values: {values}")


def unless_supported(path: str, value: str | None, supported: Sequence[str]) -> Sequence[Violation]:
    """The violation of a value that is not one of the supported ones; an absent value violates nothing."""
    return () if value is None or value in supported else (not_supported(path, value, supported),)


def unless_few(path: str, items: Sized, most: int) -> Sequence[Violation]:
    """The violation of a list that is too long."""
    count = len(items)
    return (
        (Violation(path, ErrorType.TOO_MANY, count, f"must have at most {most} items"),)
        if count > most
        else ()
    )


def too_long(path: str, most: int) -> Violation:
    """The text is too long."""
    return Violation(path, ErrorType.TOO_LONG, None, f"may not be more than {most} bytes")


def unless_short(path: str, text: str, most: int) -> Sequence[Violation]:
    """The violation of a text that is too long; in bytes."""
    return (too_long(path, most),) if len(text.encode()) > most else ()


def each_invalid(path: str, value: str, rules: Sequence[str]) -> Sequence[Violation]:
    """One violation for each of these rules."""
    return [invalid(path, value, rule) for rule in rules] if rules else ()


def name_violations(
    path: str, name: str, errors: Callable[[str], Sequence[str]], rule: str = ""
) -> Sequence[Violation]:
    """The violations of a name that must be there; ``rule`` is that of an absent one."""
    return each_invalid(path, name, errors(name)) if name else (required(path, rule),)


def optional_name_violations(
    path: str, name: str | None, errors: Callable[[str], Sequence[str]] = dns1123_subdomain_errors
) -> Sequence[Violation]:
    """The violations of a name that may be absent: None."""
    return () if name is None else each_invalid(path, name, errors(name))


def list_violations(
    check: Callable[[T, str], Iterable[Violation]], items: Iterable[T] | None, path: str
) -> Iterator[Violation]:
    """The violations of each item of a list, which may be absent."""
    for index, item in enumerate(items or ()):
        yield from check(item, f"{path}[{index}]")


def absent_fields(source: Mapping[str, Any], path: str, *fields: str) -> Iterator[Violation]:
    """The fields of these that must be there and are absent or empty."""
    return (required(f"{path}.{field}") for field in fields if not source.get(field))


def metadata_violations(
    meta: ObjectMeta,
    path: str = "metadata",
    name_errors: Callable[[str], Sequence[str]] = dns1123_subdomain_errors,
    *,
    keeps_generation: bool = False,
    names_finalizers_freely: bool = False,
) -> Iterator[Violation]:
    """The violations in the metadata; ``name_errors`` is the rule for names of the kind.

    ``keeps_generation``: the kind's generation is stored as written, where that of others begins at 1;
    ``names_finalizers_freely``: finalizers without a domain need not be Kubernetes' own.
    Follows: v1.36, apimachinery/pkg/api/validation/objectmeta.go, ValidateObjectMeta;
        pkg/apis/core/validation/validation.go, ValidateObjectMeta.
    Departs: the names in `managedFields` are not checked. The API server drops entries without a known operation, version or
        set of fields, and those whose fields the object has, before it limits names to 128 and 256 printable characters.
    """
    if meta.generate_name:
        errors = prefix_errors(meta.generate_name, name_errors)
        yield from each_invalid(f"{path}.generateName", meta.generate_name, errors)
    if meta.name or not meta.generate_name:
        yield from name_violations(f"{path}.name", meta.name, name_errors, "name or generateName is required")
    yield from optional_name_violations(f"{path}.namespace", meta.namespace or None, dns1123_label_errors)
    if keeps_generation and meta.generation < 0:
        yield invalid(f"{path}.generation", meta.generation, "must be greater than or equal to 0")
    yield from label_violations(meta.labels, f"{path}.labels")
    if meta.annotations:
        yield from annotation_violations(meta.annotations, f"{path}.annotations")
    if meta.owner_references:
        yield from _owner_violations(meta.owner_references, f"{path}.ownerReferences")
    if meta.finalizers:
        yield from _finalizer_violations(meta.finalizers, f"{path}.finalizers")
        for index, name in enumerate(() if names_finalizers_freely else meta.finalizers):
            if "/" not in name and name not in _FINALIZERS:
                rule = "name is neither a standard finalizer name nor is it fully qualified"
                yield invalid(f"{path}.finalizers[{index}]", name, rule)


_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_FINALIZERS = ("kubernetes", _ORPHAN, _FOREGROUND)


def _owner_violations(owners: Sequence[OwnerReference], path: str) -> Iterator[Violation]:
    """The violations in the references to owners.

    Follows: v1.36, apimachinery/pkg/api/validation/objectmeta.go, ValidateOwnerReferences.
    """
    controller = ""
    for owner in owners:
        slashes, version = owner.api_version.count("/"), owner.api_version.rpartition("/")[2]
        if slashes > 1 or not version:
            yield invalid(f"{path}.apiVersion", owner.api_version, "version must not be empty")
        for field, text in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not text:
                yield invalid(f"{path}.{field}", text, "must not be empty")
        if owner.api_version in ("v1", "/v1") and owner.kind == "Event":
            yield invalid(path, _owner_as_go(owner), "/v1, Kind=Event is disallowed from being an owner")
        if not owner.controller:
            continue
        if controller:
            rule = (
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controller} and {owner.kind}/{owner.name}"
            )
            yield invalid(path, [_owner_as_go(each) for each in owners], rule)
        controller = controller or f"{owner.kind}/{owner.name}"


def _owner_as_go(owner: OwnerReference) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(owner)
    return {name: value for name, value in fields.items() if name != "controller" or value}


def _finalizer_violations(finalizers: tuple[str, ...], path: str) -> Iterator[Violation]:
    """The violations in finalizers of any kind.

    Follows: v1.36, apimachinery/pkg/api/validation/objectmeta.go, ValidateFinalizers.
    """
    for name in finalizers:
        yield from each_invalid(path, name, label_key_errors(name))
    if {_ORPHAN, _FOREGROUND} <= set(finalizers):
        rule = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        yield invalid(path, finalizers, rule)


def prefix_errors(
    prefix: str, errors: Callable[[str], Sequence[str]] = dns1123_subdomain_errors
) -> Sequence[str]:
    """The rules that the prefix of a name breaks; a trailing dash is usual and allowed, because a suffix follows."""
    return errors(f"{prefix[:-1]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix)


def annotation_violations(annotations: Mapping[str, str], path: str) -> Iterator[Violation]:
    """The violations in the keys and the size of annotations.

    Follows: v1.36, apimachinery/pkg/api/validation/objectmeta.go, ValidateAnnotations.
    """
    for key in sorted(annotations):
        for rule in _annotation_key_rules(key):
            yield invalid(path, key, rule)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        yield too_long(path, _MAX_ANNOTATIONS)


@cached_texts(4096)
def _annotation_key_rules(key: str) -> tuple[str, ...]:
    return tuple(label_key_errors(key.lower()))


def label_violations(labels: Mapping[str, str], path: str) -> Iterator[Violation]:
    """The violations in labels, or in a selector of labels.

    Follows: v1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go, ValidateLabels.
    """
    for key, value in sorted(labels.items()):
        is_short = len(key) + len(value) <= MAX_TEXT_LENGTH
        for shown, rule in (_label_rules if is_short else _label_rules.__wrapped__)(key, value):
            yield invalid(path, shown, rule)


@lru_cache(maxsize=16_384)
def _label_rules(key: str, value: str) -> tuple[tuple[str, str], ...]:
    """The rules that a label breaks, each with the text that breaks it; many objects have the same labels."""
    return (
        *((key, rule) for rule in label_key_errors(key)),
        *((value, rule) for rule in label_value_errors(value)),
    )


def containers_with_fields(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    """The containers of all kinds, each with its field, in the order in which the API server visits them.

    Follows: v1.36, pkg/apis/core/pods/helpers.go, VisitContainersWithPath.
    """
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        yield from ((f"{field}[{index}]", container) for index, container in enumerate(containers))
