"""The kubelet's configuration: a file, drop-ins beside it, or a part of another document."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from nodewright.core.config import Settled, defaulted, settled
from nodewright.model.faults import ConfigFault, Stage
from nodewright.model.gates import FeatureGates, settle
from nodewright.model.kubelet_config import GROUP_VERSION, KIND, KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.values.duration import Duration
from nodewright.values.golang import quoted
from nodewright.values.quantity import Quantity
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.gojson import Decoded, decode_as_go

DROP_IN_SUFFIX = ".conf"
_SCHEME = "pkg/kubelet/apis/config/scheme/scheme.go:33"
_TYPE_META = ("apiVersion", "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration that the kubelet would start with."""

    config: KubeletConfiguration
    """With all its defaults."""
    gates: FeatureGates
    warnings: tuple[str, ...] = ()
    """What the kubelet would only log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What of the machine a configuration is checked against; without MachineInfo, CPU numbers are not."""

    machine: MachineInfo | None = None
    cgroup_version: int = 2


def load_kubelet_config(
    file: str | Path | None = None, *, config_dir: str | Path | None = None, host: Host | None = None
) -> LoadedConfig:
    """The configuration in the file, changed by the drop-ins of the directory.

    With neither, the kubelet's defaults. With drop-ins and no file there are no eviction thresholds but
    those of the drop-ins: so it is in the kubelet.

    Follows: v1.36, cmd/kubelet/app/server.go, loadConfigFile, mergeKubeletConfigurations.
    Departs: unknown fields in drop-ins warn, where the kubelet is silent; duplicate keys are errors.
    Errors:  InputError with all faults, in the kubelet's words.
    """
    warnings: list[str] = []
    config = KubeletConfiguration() if file is None else _read_file(Path(file), warnings)
    if config_dir is not None:
        base = _to_document(config, with_eviction=file is not None)
        merged, sources = _with_drop_ins(base, Path(config_dir), warnings)
        config = _checked(decode_as_go(merged, KubeletConfiguration, ignored=_TYPE_META), sources, warnings)
    return _loaded(config, str(file or config_dir or ""), host or Host(), warnings)


def kubelet_config_from(
    document: Mapping[str, Any], source: str, *, host: Host | None = None
) -> LoadedConfig:
    """The configuration that a plain document says, for instance as a part of a NodeProfile.

    It may lack apiVersion and kind; if it has them, they must be right.

    Errors: InputError with all faults, in the kubelet's words.

    >>> loaded = kubelet_config_from({"maxPods": 50, "maxPod": 5}, "profile.yaml")
    >>> loaded.config.max_pods, loaded.warnings
    (50, ('profile.yaml: unknown field "maxPod"',))
    """
    warnings: list[str] = []
    typed = {"apiVersion": GROUP_VERSION, "kind": KIND, **document}
    config = _checked(decode_document(typed, source), source, warnings)
    return _loaded(config, source, host or Host(), warnings)


def config_document(file: str | Path | None, *, config_dir: str | Path | None = None) -> dict[str, Any]:
    """The configuration as the file and its drop-ins have it, e.g. to be put into a NodeProfile.

    With drop-ins it is complete, since the kubelet merges them into its defaults.

    Errors: InputError where it cannot be read.
    """
    if config_dir is not None:
        config = KubeletConfiguration() if file is None else _read_file(Path(file), [])
        base = _to_document(config, with_eviction=file is not None)
        return _with_drop_ins(base, Path(config_dir), [])[0]
    document = {} if file is None else _document_in(Path(file), [])
    return document if isinstance(document, dict) else {}


def decode_document(document: Any, source: str) -> Decoded[KubeletConfiguration]:
    """The document as a configuration, defaults not yet filled in, with its faults and unknown fields.

    Follows: v1.36, kubelet/kubeletconfig/util/codec/codec.go, DecodeKubeletConfiguration.
    Errors:  InputError where it is no KubeletConfiguration at all.
    """
    trouble, path = _wrong_kind(document)
    if trouble:
        raise InputError([Fault(rule=f"failed to decode: {trouble}", path=path, source=source)])
    return decode_as_go(document, KubeletConfiguration, ignored=_TYPE_META)


def _wrong_kind(document: Any) -> tuple[str, str]:
    """Why a document is no KubeletConfiguration, and which field says so; empty if it is one."""
    if document is not None and not isinstance(document, dict):
        kind = {str: "string", bool: "bool", list: "array"}.get(type(document), "number")
        into = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        return (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type {into}",
            "",
        )
    found = {name: (document or {}).get(name) or "" for name in _TYPE_META}
    for name, text in found.items():
        if not isinstance(text, str):
            kind = {bool: "bool", list: "array", dict: "object"}.get(type(text), "number")
            unmarshal = f"cannot unmarshal {kind} into Go struct field .{name} of type string"
            return f"couldn't get version/kind; json parse error: json: {unmarshal}", name
    version, kind = found["apiVersion"], found["kind"]
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}", "apiVersion"
    if not kind:
        return "Object 'Kind' is missing", "kind"
    if not version or version.endswith("/"):
        return "Object 'apiVersion' is missing", "apiVersion"
    if (version, kind) != (GROUP_VERSION, KIND):
        path = "kind" if version == GROUP_VERSION else "apiVersion"
        return (
            f"no kind {quoted(kind)} is registered for version {quoted(version)} in scheme {quoted(_SCHEME)}",
            path,
        )
    return "", ""


def _read_file(file: Path, warnings: list[str]) -> KubeletConfiguration:
    document = _document_in(file, warnings)
    config = _checked(decode_document(document, str(file)), str(file), warnings)
    return _with_absolute_paths(config, file)


def _document_in(file: Path, warnings: list[str]) -> Any:
    """The first document of a file; the kubelet does not look at others."""
    content = read_file(str(file)).content
    if not content:
        raise InputError([Fault(rule=f"kubelet config file {quoted(str(file))} was empty", source=str(file))])
    documents = parse_documents(content, str(file))
    if len(documents) > 1:
        warnings.append(f"{file}: only the first of {len(documents)} documents counts")
    return documents[0].value if documents else None


def _checked(
    decoded: Decoded[KubeletConfiguration], source: str, warnings: list[str]
) -> KubeletConfiguration:
    """What was decoded, if nothing is wrong with it."""
    if decoded.faults:
        first = decoded.first
        ordered = sorted(decoded.faults, key=lambda fault: fault is not first)
        told = [
            Fault(rule=f"failed to decode: {fault.text}", path=fault.path, value=fault.value, source=source)
            for fault in ordered
        ]
        # The kubelet stops here. What is wrong with the rest is told as well, where it does not hang on what is missing.
        rest = (fault for fault in settled(decoded.value).faults if fault.path and fault.value is not None)
        raise InputError([*told, *(_fault(fault, source) for fault in rest)])
    warnings += [f"{source}: unknown field {quoted(path)}" for path in decoded.unknown]
    return decoded.value


def _loaded(config: KubeletConfiguration, source: str, host: Host, warnings: list[str]) -> LoadedConfig:
    found = settled(config, machine=host.machine, cgroup_version=host.cgroup_version)
    if found.faults:
        raise InputError([_fault(fault, source) for fault in found.faults])
    warnings += _retiring(found, source)
    return LoadedConfig(config=found.config, gates=found.gates, warnings=tuple(warnings))


def _retiring(found: Settled, source: str) -> list[str]:
    prefix = f"{source}: " if source else ""
    return [
        f"{prefix}setting {'GA' if gate.stage == 'GA' else 'deprecated'} feature gate {gate.name}; "
        "it will be removed in a future release"
        for gate in found.settings.retiring
    ]


_LEADS = {
    Stage.DECODING: "failed to decode: ",
    Stage.GATES: "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: ",
    Stage.VALIDATION: "",
    Stage.STARTUP: "",
}


def _fault(fault: ConfigFault, source: str) -> Fault:
    return Fault(rule=_LEADS[fault.stage] + fault.text, path=fault.path, value=fault.value, source=source)


_PATHS = (
    "static_pod_path",
    "tls_cert_file",
    "tls_private_key_file",
    "resolver_config",
    "volume_plugin_dir",
    "pod_logs_dir",
)


def _with_absolute_paths(config: KubeletConfiguration, file: Path) -> KubeletConfiguration:
    """The configuration with its relative paths taken from the file's directory."""
    root = file.absolute().parent
    changes = {
        name: str(root / path)
        for name in _PATHS
        if (path := getattr(config, name)) and not path.startswith("/")
    }
    return msgspec.structs.replace(config, **changes)


def _to_document(config: KubeletConfiguration, *, with_eviction: bool) -> dict[str, Any]:
    """The configuration with its defaults as the plain document that drop-ins change."""
    complete = defaulted(config, settle(config.feature_gates).gates)
    if not with_eviction:
        complete = msgspec.structs.replace(complete, eviction_hard={})
    document = msgspec.to_builtins(complete, enc_hook=_text, order=None)
    assert isinstance(document, dict)
    return dict(_without_nones(document))


def _text(value: Any) -> str:
    assert isinstance(value, Duration | Quantity)
    return str(value)


def _without_nones(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _without_nones(item) for key, item in document.items() if item is not None}
    if isinstance(document, list | tuple):
        return [_without_nones(item) for item in document]
    return document


def _with_drop_ins(base: dict[str, Any], directory: Path, warnings: list[str]) -> tuple[dict[str, Any], str]:
    """The document after all drop-ins, by name, and the files that made it."""
    if not directory.is_dir():
        raise InputError([Fault(rule="no such directory", source=str(directory))])
    merged: Any = base
    used: list[str] = []
    for path in _files_below(directory):
        if path.suffix != DROP_IN_SUFFIX:
            warnings.append(f"{path}: skipped, its name does not end in {DROP_IN_SUFFIX}")
            continue
        merged = merge_patch(merged, _drop_in(path, warnings))
        used.append(str(path))
    # Without eviction thresholds there are none; the defaults belong to the file.
    merged.setdefault("evictionHard", {})
    return merged, " + ".join(used) or str(directory)


def _files_below(directory: Path) -> list[Path]:
    """All files of a directory and those below, each directory by name."""
    found: list[Path] = []
    for path in sorted(directory.iterdir(), key=lambda one: one.name):
        found += _files_below(path) if path.is_dir() and not path.is_symlink() else [path]
    return found


def _drop_in(path: Path, warnings: list[str]) -> dict[str, Any]:
    document = _document_in(path, warnings)
    lead = f"failed to load kubelet dropin file, path: {path}"
    if not isinstance(document, dict) or not document.get("kind"):
        rule = f"{lead}, error: failed to load drop-in kubelet config file {path}, error Object 'Kind' is missing"
        raise InputError([Fault(rule=rule, path="kind", source=str(path))])
    if (document.get("apiVersion"), document["kind"]) != (GROUP_VERSION, KIND):
        named = f"{document.get('apiVersion') or '/'}, Kind={document['kind']}"
        raise InputError(
            [Fault(rule=f"{lead}, unknown apiVersion/kind: {named}", path="apiVersion", source=str(path))]
        )
    return document


def merge_patch(target: Any, patch: Any) -> Any:
    """The document after a merge patch: null takes away, objects merge, everything else replaces.

    Follows: Go, github.com/evanphx/json-patch, MergePatch (RFC 7386).

    >>> merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
    {'a': {'c': 2}, 'd': [2]}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
