"""Manifests that Python code holds: paths, text, mappings, and the objects of Kubernetes clients.

Clients are recognised by what their objects offer, so that none of them is a dependency: the attribute maps of the
official client, `to_dict` of lightkube and kr8s.
"""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from nodewright.documents.formats.controllers import POD_TEMPLATES
from nodewright.model.errors import Fault, InputError

_CLIENT_CLASS = re.compile(r"V\d+(?:(?:alpha|beta)\d+)?(\w+)")
_KINDS_OF_CORE = ("Pod", "PodTemplate", "ReplicationController", "LimitRange", "ResourceQuota", "Node")


@runtime_checkable
class ClientObject(Protocol):
    """An object of a Kubernetes client."""

    def to_dict(self) -> dict[str, Any]:
        """The object as a mapping with the field names of Kubernetes."""


ManifestSource: TypeAlias = "str | os.PathLike[str] | bytes | Mapping[str, Any] | ClientObject"
"""A path, YAML or JSON as text (more than one line, or a brace at its begin), an object as a mapping, or of a client."""


def is_text(source: str) -> bool:
    r"""Whether the string is a manifest and not the name of a file.

    >>> is_text("kind: Pod\nmetadata: {}"), is_text("pods.yaml"), is_text('{"kind": "Pod"}')
    (True, False, True)
    """
    return "\n" in source or source.lstrip().startswith("{")


def mapping_of(source: object) -> dict[str, Any]:
    """The object as a mapping with the field names of Kubernetes.

    Errors: InputError for objects of other kinds.
    """
    value = _plain(source)
    if not isinstance(value, dict):
        rule = "must be a path, YAML or JSON text, a mapping, or an object of a Kubernetes client"
        raise InputError([Fault(value=type(source).__name__, rule=rule)])
    if hasattr(source, "attribute_map"):
        _add_type(value, type(source).__name__)
    return value


def files_and_objects(
    sources: tuple[ManifestSource, ...],
) -> Iterator[str | tuple[str, bytes | dict[str, Any]]]:
    """Each source: the name of a file, or a name for messages with the text or the object."""
    for number, source in enumerate(sources, start=1):
        name = f"argument {number}"
        if isinstance(source, bytes):
            yield name, source
        elif isinstance(source, str):
            yield (name, source.encode()) if is_text(source) else source
        elif isinstance(source, os.PathLike):
            yield str(Path(source))
        else:
            yield name, mapping_of(source)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    names = getattr(value, "attribute_map", None)
    if isinstance(names, Mapping):  # the official client: its own `to_dict` has the names of Python
        fields = ((names[name], getattr(value, name)) for name in names)
        return {name: _plain(item) for name, item in fields if item is not None}
    return _plain(value.to_dict()) if isinstance(value, ClientObject) else value


def _add_type(value: dict[str, Any], class_name: str) -> None:
    """Adds the type, which the official client leaves out of objects that it has listed."""
    match = _CLIENT_CLASS.fullmatch(class_name)
    kind = str(value.get("kind") or (match[1] if match else ""))
    item_kind = kind.removesuffix("List")
    versions = {template_kind: version for version, template_kind in reversed(list(POD_TEMPLATES))}
    version = "v1" if item_kind in _KINDS_OF_CORE else versions.get(item_kind, "v1")
    value.setdefault("kind", kind)
    value.setdefault("apiVersion", version)
