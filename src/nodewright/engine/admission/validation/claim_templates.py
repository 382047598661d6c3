"""Validation of the templates of PersistentVolumeClaims in ephemeral volumes."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.placement import label_selector_violations
from nodewright.engine.admission.validation.violation import (
    Violation,
    annotation_violations,
    each_invalid,
    forbidden,
    invalid,
    label_violations,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.values.quantity import Quantity

Fields = Mapping[str, Any]

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_OF_METADATA = ("annotations", "labels")
_CLAIM = "PersistentVolumeClaim"


def claim_template_violations(template: Fields, path: str) -> Iterator[Violation]:
    """The violations in the template of a claim.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeClaimTemplate.
    """
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    yield from annotation_violations(meta.get("annotations") or {}, f"{path}.metadata.annotations")
    yield from label_violations(meta.get("labels") or {}, f"{path}.metadata.labels")
    for field in sorted(meta):
        if field not in _OF_METADATA and meta[field]:
            yield forbidden(f"{path}.metadata.{'uID' if field == 'uid' else field}", "cannot be set")
    yield from claim_spec_violations(spec, f"{path}.spec")


def claim_spec_violations(spec: Fields, spec_path: str) -> Iterator[Violation]:
    """The violations in the spec of a claim.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeClaimSpec.
    """
    yield from _access_mode_violations(spec.get("accessModes") or (), f"{spec_path}.accessModes")
    yield from label_selector_violations(spec.get("selector"), f"{spec_path}.selector")
    yield from _storage_violations(spec, f"{spec_path}.resources[storage]")
    for field in ("storageClassName", "volumeAttributesClassName"):
        name = spec.get(field)
        if name:
            yield from each_invalid(f"{spec_path}.{field}", name, dns1123_subdomain_errors(name))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        yield not_supported(f"{spec_path}.volumeMode", mode, _VOLUME_MODES)
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            yield from _data_source_violations(spec[field], f"{spec_path}.{field}")
    yield from _source_conflict(spec.get("dataSource"), spec.get("dataSourceRef"), spec_path)


def _access_mode_violations(modes: tuple[str, ...], path: str) -> Iterator[Violation]:
    if not modes:
        yield required(path, "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _storage_violations(spec: Fields, path: str) -> Iterator[Violation]:
    """The violation of the requested storage, which is a positive amount."""
    text = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if text is None:
        yield required(path)
        return
    amount = Quantity.parse(str(text).strip())
    if amount.sign() <= 0:
        yield invalid(path, str(amount), "must be greater than zero")


def _source_conflict(source: Fields | None, reference: Fields | None, path: str) -> Iterator[Violation]:
    """The violation of two sources that differ; the API server prints no field, but the empty one of its own."""
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        yield invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        yield invalid(path, {}, "must match dataSourceRef")


def _data_source_violations(source: Fields, path: str) -> Iterator[Violation]:
    for field in ("name", "kind"):
        if not source.get(field):
            yield required(f"{path}.{field}")
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != _CLAIM:
        yield invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group:
        yield from each_invalid(f"{path}.apiGroup", group, dns1123_subdomain_errors(group))
    if (namespace := source.get("namespace")) and path.endswith("Ref"):
        yield from each_invalid(f"{path}.namespace", namespace, dns1123_label_errors(namespace))
