"""Checks the fields of many pods: the spec of a pod that is like one before is not checked again.

The pods of a template differ in their names, their nodes and the name of the volume with their token.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.formats.schema import CheckedDocument, checked
from nodewright.patterns import lazy_pattern

_MAX_KEPT = 4096
_WORTH_COMPILING = 100
"""Number of objects of a kind."""
_TOKEN_VOLUME = lazy_pattern(r"kube-api-access-[a-z0-9]{5}")
"""The name that the API server's plugin ServiceAccount generates.

Follows: v1.36, plugin/pkg/admission/serviceaccount/admission.go, ServiceAccountVolumeName.
"""
_ANY_TOKEN_VOLUME = b"kube-api-access-*"
_SHORTEST_SPEC: dict[str, Any] = {"containers": []}


class CheckedPod(NamedTuple):
    """A document with its schema faults, and what is known of pods like it."""

    check: CheckedDocument
    shape: bytes = b""
    """The spec without what differs between the pods of a template; empty: not known."""
    has_valid_spec: bool = False
    """Whether a pod of this shape has neither faults nor violations."""


class AlikePods:
    """The shapes of the pods that were valid."""

    def __init__(self) -> None:
        self._may_have_nulls: dict[bytes, bool] = {}
        self._valid_templates: set[bytes] = set()
        self._counts: dict[str, int] = {}

    def check(self, value: dict[str, Any], kind: str) -> CheckedPod:
        """The document with its schema faults, equal to what `checked` finds."""
        shape = pod_shape(value.get("spec")) if kind == "Pod" else b""
        spec_may_have_nulls = self._may_have_nulls.get(shape)
        if spec_may_have_nulls is None:
            return CheckedPod(self._checked(value, kind), shape)
        rest = self._checked({**value, "spec": _SHORTEST_SPEC}, kind)
        if rest.located_faults or rest.null_members:
            return CheckedPod(self._checked(value, kind), shape, has_valid_spec=True)
        may_have_nulls = rest.may_have_nulls or spec_may_have_nulls
        return CheckedPod(
            replace(rest, document=value, may_have_nulls=may_have_nulls), shape, has_valid_spec=True
        )

    def has_valid_template(self, shape: bytes) -> bool:
        """Whether a template of this shape had no violations; ``shape`` is that of `template_shape`."""
        return shape in self._valid_templates

    def add_valid_template(self, shape: bytes) -> None:
        """Keeps the shape of a template without violations."""
        if len(self._valid_templates) >= _MAX_KEPT:
            self._valid_templates.clear()
        if shape:
            self._valid_templates.add(shape)

    def _checked(self, value: dict[str, Any], kind: str) -> CheckedDocument:
        """As `checked`; with the compiled schema once there are many objects of the kind."""
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= _WORTH_COMPILING:
            return checked(value, kind)
        from nodewright.formats.compiled_schema import is_plain  # noqa: PLC0415 - start-up time

        plain = is_plain(value, kind)
        return CheckedDocument(value, [], [], may_have_nulls=False) if plain else checked(value, kind)

    def add_valid(self, pod: CheckedPod) -> None:
        """Keeps the shape of a pod that has no violations."""
        if pod.has_valid_spec or not pod.shape or pod.check.located_faults or pod.check.null_members:
            return
        if len(self._may_have_nulls) >= _MAX_KEPT:
            self._may_have_nulls.clear()
        self._may_have_nulls[pod.shape] = pod.check.may_have_nulls


def template_shape(spec: dict[str, Any]) -> bytes:
    """A text that is equal for specs of templates which differ at most in the images of their containers; empty: not known.

    >>> images = ("registry.example/web:1", "registry.example/web:2", " web")
    >>> shapes = [template_shape({"containers": [{"name": "main", "image": image}]}) for image in images]
    >>> shapes[0] == shapes[1], shapes[0] == shapes[2]
    (True, False)
    """
    containers = spec.get("containers")
    if not isinstance(containers, list):
        return b""
    return pod_shape({**spec, "containers": list(map(_without_image, containers))})


def _without_image(container: Any) -> Any:
    """The container with an image that all share, if its own image is one that the API server accepts."""
    image = container.get("image") if isinstance(container, dict) else None
    return (
        {**container, "image": "*"}
        if isinstance(image, str) and image and image == image.strip()
        else container
    )


def pod_shape(spec: Any) -> bytes:
    """A text that is equal for specs which differ at most in their node and their token's volume; empty for other values.

    >>> pod_shape({"nodeName": "a", "hostname": "web"}) == pod_shape({"nodeName": "b", "hostname": "web"})
    True
    """
    if not isinstance(spec, dict) or not isinstance(spec.get("nodeName", ""), str):
        return b""
    volumes = spec.get("volumes")
    try:
        text = msgspec.json.encode({key: value for key, value in spec.items() if key != "nodeName"})
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError):  # what JSON has no text for
        return b""
    for volume in volumes if isinstance(volumes, list) else ():
        name = volume.get("name") if isinstance(volume, dict) else None
        if isinstance(name, str) and _TOKEN_VOLUME.fullmatch(name):
            text = text.replace(name.encode(), _ANY_TOKEN_VOLUME)
    return text
