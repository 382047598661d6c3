"""Reads many pods: the spec of a pod that is like one before is not checked, decoded or completed again.

The pods of a template differ in their names, their nodes and the name of the volume with their token.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import CheckedDocument, checked
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import ENCODING_ERRORS
from nodewright.model.kubernetes.objects import Container, Pod, PodSpec
from nodewright.model.patterns import lazy_pattern

_MAX_KEPT = 4096
_WORTH_COMPILING = 100
"""Number of objects of a kind."""
_TOKEN_VOLUME = lazy_pattern(r"kube-api-access-[a-z0-9]{5}")
"""The name that the API server's plugin ServiceAccount generates.

Follows: v1.36, plugin/pkg/admission/serviceaccount/admission.go, ServiceAccountVolumeName.
"""
_ANY_TOKEN_VOLUME = b"kube-api-access-\0"
"""What no JSON has in it: there, this byte is escaped."""
_SHORTEST_SPEC: dict[str, Any] = {"containers": []}


class SharedSpec(msgspec.Struct, frozen=True, eq=False):
    """The spec of the first of these pods, without its node."""

    submitted: PodSpec
    """As it is written, with its default ports."""
    defaulted: PodSpec
    """With the defaults of its resources as well; often the same object."""
    token_volumes: tuple[str, ...]
    """The names of its volumes with tokens."""
    is_renamable: bool
    """Whether there is one such volume, whose name is that of its mounts and nothing else."""
    may_have_nulls: bool

    def alike(self, node_name: str, token_volumes: tuple[str, ...]) -> "AlikeSpec | None":
        """The spec of a pod with that node and these volumes; None: there is more than one name to change."""
        if token_volumes == self.token_volumes:
            return AlikeSpec(self, node_name)
        if not self.is_renamable:
            return None
        (own_name,) = token_volumes
        return AlikeSpec(self, node_name, own_name)


class AlikeSpec(msgspec.Struct, frozen=True, eq=False):
    """A spec that is like the shared one, but for its node and the names of its volumes with tokens."""

    shared: SharedSpec
    node_name: str
    token_volume: str = ""
    """The name of its volume with a token; empty: as in the shared spec."""

    def own(self, spec: PodSpec) -> PodSpec:
        """The pod's own spec where the shared one is, or became, ``spec``."""
        if self.token_volume:
            spec = replace(
                spec,
                volumes=tuple(map(self._renamed, spec.volumes)),
                containers=tuple(map(self._mounted, spec.containers)),
                init_containers=tuple(map(self._mounted, spec.init_containers)),
            )
        return replace(spec, node_name=self.node_name) if self.node_name else spec

    def defaulted(self, submitted: PodSpec) -> PodSpec:
        """The pod's own spec with the defaults of its resources; ``submitted``: without them."""
        shared = self.shared
        return submitted if shared.defaulted is shared.submitted else self.own(shared.defaulted)

    def _mounted(self, container: Container) -> Container:
        mounts = container.volume_mounts
        return replace(container, volume_mounts=tuple(map(self._renamed, mounts))) if mounts else container

    def _renamed(self, part: dict[str, Any]) -> dict[str, Any]:
        (name,) = self.shared.token_volumes
        return {**part, "name": self.token_volume} if part.get("name") == name else part


class CheckedPod(NamedTuple):
    """A document with its schema faults, and what is known of pods like it."""

    check: CheckedDocument
    shape: bytes = b""
    """The spec without what differs between the pods of a template; empty: not known."""
    shared: SharedSpec | None = None
    """What the pods of this shape share: one of them has neither faults nor violations. None: no pod is known."""

    @property
    def has_valid_spec(self) -> bool:
        """Whether a pod of this shape has neither faults nor violations."""
        return self.shared is not None

    def alike(self) -> AlikeSpec | None:
        """The spec of a document without faults, made of what pods like it share; None: it has to be decoded."""
        if self.shared is None:
            return None
        spec = self.check.document["spec"]
        return self.shared.alike(spec.get("nodeName", ""), token_volumes(spec))


class AlikePods:
    """The shapes of the pods that were valid."""

    def __init__(self) -> None:
        self._shared: dict[bytes, SharedSpec] = {}
        self._valid_templates: set[bytes] = set()
        self._counts: dict[str, int] = {}

    def check(self, value: dict[str, Any], kind: str) -> CheckedPod:
        """The document with its schema faults, equal to what `checked` finds."""
        shape = pod_shape(value.get("spec")) if kind == "Pod" else b""
        shared = self._shared.get(shape)
        if shared is None:
            return CheckedPod(self._checked(value, kind), shape)
        rest = self._checked({**value, "spec": _SHORTEST_SPEC}, kind)
        if rest.located_faults or rest.null_members:
            return CheckedPod(self._checked(value, kind), shape, shared)
        may_have_nulls = rest.may_have_nulls or shared.may_have_nulls
        return CheckedPod(replace(rest, document=value, may_have_nulls=may_have_nulls), shape, shared)

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
        from nodewright.documents.formats.decode import is_plain  # noqa: PLC0415 - start-up time

        plain = is_plain(value, kind)
        return CheckedDocument(value, [], [], may_have_nulls=False) if plain else checked(value, kind)

    def add_valid(self, pod: CheckedPod, spec: PodSpec) -> None:
        """Keeps the shape of a pod that has no violations, and its spec as it is written."""
        check = pod.check
        if pod.shared is not None or not pod.shape or check.located_faults or check.null_members:
            return
        if len(self._shared) >= _MAX_KEPT:
            self._shared.clear()
        tokens = token_volumes(check.document["spec"])
        self._shared[pod.shape] = _shared_spec(
            spec, tokens, pod.shape.count(_ANY_TOKEN_VOLUME), may_have_nulls=check.may_have_nulls
        )


def _shared_spec(
    spec: PodSpec, token_volumes: tuple[str, ...], occurrences: int, *, may_have_nulls: bool
) -> SharedSpec:
    """What the pods like one share.

    ``spec``: with its default ports; ``occurrences``: how often the names of its volumes with tokens are in its text.
    """
    submitted = replace(spec, node_name="") if spec.node_name else spec
    parts = [*spec.volumes]
    for container in (*spec.containers, *spec.init_containers):
        parts += container.volume_mounts
    named = sum(part.get("name") in token_volumes for part in parts)
    return SharedSpec(
        submitted=submitted,
        defaulted=with_defaults(Pod(spec=submitted)).spec,
        token_volumes=token_volumes,
        is_renamable=len(token_volumes) == 1 and named == occurrences,
        may_have_nulls=may_have_nulls,
    )


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
    try:
        text = msgspec.json.encode({key: value for key, value in spec.items() if key != "nodeName"})
    except ENCODING_ERRORS:
        return b""
    for name in token_volumes(spec):
        text = text.replace(name.encode(), _ANY_TOKEN_VOLUME)
    return text


def token_volumes(spec: dict[str, Any]) -> tuple[str, ...]:
    """The names of the volumes with tokens, in their order."""
    volumes = spec.get("volumes")
    if not volumes or not isinstance(volumes, list):
        return ()
    names = [volume.get("name") for volume in volumes if isinstance(volume, dict)]
    return tuple(name for name in names if isinstance(name, str) and _TOKEN_VOLUME.fullmatch(name))
