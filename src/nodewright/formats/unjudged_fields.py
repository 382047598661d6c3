"""The fields of a pod that the API server validates and this project does not."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.formats.controllers import POD_TEMPLATES
from nodewright.reasons.reason import NotJudged

_REASON = "the API server validates it, this project does not"
_POD_FIELDS = ("schedulingGroup",)
_CONTAINER_LISTS = ("containers", "initContainers")
_WINDOWS = "windowsOptions"


def unjudged_fields(value: Mapping[str, Any]) -> tuple[NotJudged, ...]:
    """The fields that are set in an object's pods, although nothing here tells whether they are valid.

    `docs/reference/pod-fields.md` lists all fields and how each is treated.

    >>> spec = {"schedulingGroup": {"podGroupName": "a"}}
    >>> [fact.what for fact in unjudged_fields({"apiVersion": "v1", "kind": "Pod", "spec": spec})]
    ['spec.schedulingGroup']
    """
    location = POD_TEMPLATES.get((value["apiVersion"], value["kind"]))
    for step in location.path if location is not None else ():
        value = value.get(step) or {}
    spec = value.get("spec") or {}
    return tuple(NotJudged(what=f"spec.{path}", because=_REASON) for path in _paths(spec))


def _paths(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in _POD_FIELDS if spec.get(field))
    yield from _of_security_context(spec, "")
    for field in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            prefix = f"{field}[{index}]."
            yield from _of_security_context(container, prefix)


def _of_security_context(holder: Mapping[str, Any], prefix: str) -> Iterator[str]:
    if (holder.get("securityContext") or {}).get(_WINDOWS):
        yield f"{prefix}securityContext.{_WINDOWS}"
