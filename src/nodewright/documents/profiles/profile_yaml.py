"""NodeProfiles as documents and YAML, without fields at their default, and with one line a core."""

import sys
from functools import cache
from typing import Any

import msgspec
import yaml

from nodewright.documents.output.json_yaml import KubectlYAMLDumper, plain_value
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.printable import printable_text

# Machine types are written with their zeros, only without empty lists.
_EXPANDED_FIELDS = (MachineInfo, NUMANode, Core, UncoreCache, HugePages)
_INLINE_FIELDS = (Core, UncoreCache, HugePages)
_ALWAYS_WRITTEN: dict[type, tuple[str, ...]] = {
    NodeProfile: ("api_version", "kind", "spec"),
    NodeProfileSpec: (
        "kubernetes_version",
        "machine_info",
        "root_fs_capacity",
        "kubelet_configuration",
        "cgroup_version",
        "swap_bytes",
        "page_size_bytes",
        "pid_max",
    ),
}


class _InlineObject(dict[str, Any]):
    """An object that is written on one line."""


class _InlineList(list[Any]):
    """A list that is written on one line."""


def profile_document(profile: NodeProfile) -> dict[str, Any]:
    """The profile as a document, which reads back as the same profile."""
    document = object_document(profile)
    spec = document["spec"]
    spec["machineInfo"] = spec.pop("machineInfo")  # the longest part last
    order = ("apiVersion", "kind", "metadata", "spec")
    return {key: document[key] for key in order if key in document}


def profile_yaml(document: dict[str, Any]) -> str:
    """The document of a profile as readable YAML."""
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return printable_text(text)


def object_document(value: Any) -> Any:
    """The object as a document, without fields at their default."""
    if type(value) is str:
        return value
    if isinstance(value, msgspec.Struct):
        kind: type[msgspec.Struct] = type(value)
        members = {
            name: object_document(item)
            for field, name, default in written_fields(kind)
            if (item := getattr(value, field)) != default
            and not (default is _EXPANDED and isinstance(item, tuple) and not item)
        }
        return _InlineObject(members) if isinstance(value, _INLINE_FIELDS) else members
    if isinstance(value, dict):
        return {str(key): object_document(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [object_document(item) for item in value]
        are_integers = all(isinstance(item, int) for item in items)
        return _InlineList(items) if are_integers else items
    return plain_value(value)


_ALWAYS, _EXPANDED = object(), object()
"""Defaults that no value equals: of fields that are always written, and of those that are written unless they are empty lists."""


@cache
def written_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Name, JSON name and default of each field; to find them out takes longer than to write them."""
    fields = []
    for field in msgspec.structs.fields(kind):
        if issubclass(kind, _EXPANDED_FIELDS):
            default = _EXPANDED
        elif field.name in _ALWAYS_WRITTEN.get(kind, ()):
            default = _ALWAYS
        elif field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            default = field.default
        fields.append((field.name, field.encode_name, default))
    return tuple(fields)


class _Dumper(KubectlYAMLDumper):
    """Writes _InlineObject and _InlineList on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # equal values are written out each time
        del data
        return True


def _represent_inline_object(dumper: yaml.SafeDumper, value: _InlineObject) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)


def _represent_inline_list(dumper: yaml.SafeDumper, value: _InlineList) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(_InlineObject, _represent_inline_object)
_Dumper.add_representer(_InlineList, _represent_inline_list)
