"""NodeProfiles as documents: what is at its default left out, a core on a line."""

from typing import Any

import msgspec
import yaml

from nodewright.model.machine import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.render.documents import Dumper, plain

# A machine says its numbers even where they are zero.
_SPELLED_OUT = (MachineInfo, NUMANode, Core, UncoreCache, HugePages)
_ON_ONE_LINE = (Core, UncoreCache, HugePages)
_ALWAYS: dict[type, tuple[str, ...]] = {
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


class _Line(dict[str, Any]):
    """An object that is written on one line."""


class _Numbers(list[Any]):
    """A list that is written on one line."""


def profile_document(profile: NodeProfile) -> dict[str, Any]:
    """The profile as a document; reading it gives the profile again."""
    document = object_document(profile)
    spec = document["spec"]
    spec["machineInfo"] = spec.pop("machineInfo")  # the longest part last
    order = ("apiVersion", "kind", "metadata", "spec")
    return {key: document[key] for key in order if key in document}


def profile_yaml(profile: NodeProfile) -> str:
    """The profile as YAML for people."""
    return str(
        yaml.dump(
            profile_document(profile), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
        )
    )


def object_document(value: Any) -> Any:
    """An object that we read, as a document; what is at its default is left out."""
    if isinstance(value, msgspec.Struct):
        kind: type[msgspec.Struct] = type(value)
        held = {
            field.encode_name: object_document(getattr(value, field.name))
            for field in msgspec.structs.fields(kind)
            if _said(kind, field, getattr(value, field.name))
        }
        return _Line(held) if isinstance(value, _ON_ONE_LINE) else held
    if isinstance(value, dict):
        return {str(key): object_document(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [object_document(item) for item in value]
        numbers = all(isinstance(item, int) for item in items)
        return _Numbers(items) if numbers else items
    return plain(value)


def _said(kind: type, field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if issubclass(kind, _SPELLED_OUT):
        return not (isinstance(value, tuple) and not value)
    if field.name in _ALWAYS.get(kind, ()):
        return True
    default = (
        field.default_factory()
        if field.default_factory is not msgspec.NODEFAULT and field.default is msgspec.NODEFAULT
        else field.default
    )
    return bool(value != default)


class _Dumper(Dumper):
    """Writes _Line and _Numbers on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # equal values are not one
        del data
        return True


def _on_one_line(dumper: yaml.SafeDumper, value: _Line) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)


def _in_one_line(dumper: yaml.SafeDumper, value: _Numbers) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(_Line, _on_one_line)
_Dumper.add_representer(_Numbers, _in_one_line)
