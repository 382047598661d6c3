"""Loads the kubelet's configuration from a file with drop-ins, or from a part of another document."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nodewright.documents.formats.documents import InputFile, parse_documents, read_file
from nodewright.documents.formats.json_documents import merge_patch
from nodewright.documents.formats.kubelet_json import Decoded, decode_as_go
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.engine.core.config.complete_config import CompleteConfig, complete_config, defaulted
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import GROUP_VERSION, KIND, KubeletConfiguration
from nodewright.model.releases.feature_gates import FeatureGates, resolve_gates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import Quantity

if TYPE_CHECKING:
    from pathlib import Path


DROP_IN_SUFFIX = ".conf"
_SCHEME = "pkg/kubelet/apis/config/scheme/scheme.go:33"
_TYPE_META = ("apiVersion", "kind")


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that the kubelet starts with."""

    config: KubeletConfiguration
    """With all its defaults."""
    gates: FeatureGates
    warnings: tuple[str, ...] = ()
    """Problems that the kubelet only logs."""


class ConfigHost(msgspec.Struct, frozen=True, kw_only=True):
    """The release and machine that a configuration is validated for; without MachineInfo, CPU numbers are not validated."""

    machine: MachineInfo | None = None
    cgroup_version: int = 2
    release: ReleaseTable = NEWEST


def load_kubelet_config(
    file: "str | Path | None" = None,
    *,
    config_dir: "str | Path | None" = None,
    host: ConfigHost | None = None,
) -> LoadedConfig:
    """The configuration in the file, merged with the drop-ins of the directory.

    With neither, the kubelet's defaults. With drop-ins and no file, only the drop-ins' eviction thresholds apply,
    as in the kubelet.

    Follows: v1.36, cmd/kubelet/app/server.go, loadConfigFile, mergeKubeletConfigurations.
    Departs: unknown fields in drop-ins warn, where the kubelet is silent; duplicate keys are errors.
    Errors:  InputError with all faults, with the kubelet's messages.
    """
    warnings: list[str] = []
    host = host or ConfigHost()
    if config_dir is None and file is not None:
        try:
            return _loaded(_read_file(str(file), warnings, host.release), str(file), host, warnings)
        except InputError as error:
            raise _located(error, str(file)) from None
    config = KubeletConfiguration() if file is None else _read_file(str(file), warnings, host.release)
    if config_dir is not None:
        base = _to_document(config, host.release, with_eviction=file is not None)
        merged, sources = _with_drop_ins(base, config_dir, warnings)
        config = _checked(_decoded(merged, host.release), sources, warnings, host.release)
    return _loaded(config, str(file or config_dir or ""), host, warnings)


def _located(error: InputError, file: str) -> InputError:
    """The error, with the line and column of each field at fault."""
    if not any(fault.path and fault.source == file for fault in error.faults):
        return error
    location = ObjectLocation(file, read_file(file).content, 1, 1)
    return InputError([location.locate(fault) if fault.source == file else fault for fault in error.faults])


def kubelet_config_from(
    document: Mapping[str, Any], source: str, *, host: ConfigHost | None = None
) -> LoadedConfig:
    """The configuration in a plain document, for instance a part of a NodeProfile.

    apiVersion and kind are optional, but must be correct if they are set.

    Errors: InputError with all faults, with the kubelet's messages.

    >>> loaded = kubelet_config_from({"maxPods": 50, "maxPod": 5}, "profile.yaml")
    >>> loaded.config.max_pods, loaded.warnings
    (50, ('profile.yaml: unknown field "maxPod"',))
    """
    warnings: list[str] = []
    typed = {"apiVersion": GROUP_VERSION, "kind": KIND, **document}
    host = host or ConfigHost()
    decoded = decode_kubelet_config(typed, source, host.release)
    return _loaded(_checked(decoded, source, warnings, host.release), source, host, warnings)


def config_document(file: "str | Path | None", *, config_dir: "str | Path | None" = None) -> dict[str, Any]:
    """The configuration as written in the file and its drop-ins, e.g. for a NodeProfile.

    With drop-ins it is complete, because the kubelet merges them into its defaults.

    Errors: InputError if it cannot be read.
    """
    if config_dir is not None:
        config = KubeletConfiguration() if file is None else _read_file(str(file), [], NEWEST)
        base = _to_document(config, NEWEST, with_eviction=file is not None)
        return _with_drop_ins(base, config_dir, [])[0]
    if file is None:
        return {}
    document = _document_in(str(file), [])
    if not isinstance(document, dict) or not document.get("kind"):
        decode_kubelet_config(document, str(file))
    assert isinstance(document, dict), "another document is no KubeletConfiguration"
    return document


class WrittenConfig(NamedTuple):
    """The document without apiVersion and kind, the paths of fields that the kubelet does not know, and how it was read."""

    document: dict[str, Any]
    unknown_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_written_config(path: "Path") -> WrittenConfig:
    """The first configuration of the file, in any of the known forms.

    Whether the kubelet would start with it is checked when a node is created from the profile.

    Errors: InputError if it is not a KubeletConfiguration, or with every field of a wrong type.
    """
    file = read_file(str(path))
    warnings: list[str] = []
    value = _configuration_in(file, warnings)
    decoded = decode_kubelet_config(value, file.source)
    if decoded.faults:
        raise InputError(
            [
                Fault(rule=fault.message, path=fault.path, value=fault.value, source=file.source)
                for fault in decoded.faults
            ]
        )
    document = {key: item for key, item in value.items() if key not in _TYPE_META} if value else {}
    return WrittenConfig(document, tuple(decoded.unknown_fields), tuple(warnings))


def decode_kubelet_config(
    document: Any, source: str, release: ReleaseTable = NEWEST
) -> Decoded[KubeletConfiguration]:
    """The document as a release's configuration without defaults, with its faults and unknown fields.

    Follows: v1.36, kubelet/kubeletconfig/util/codec/codec.go, DecodeKubeletConfiguration.
    Errors:  InputError if the document is not a KubeletConfiguration.
    """
    message, path = _kind_error(document)
    if message:
        raise InputError([Fault(rule=f"failed to decode: {message}", path=path, source=source)])
    return _decoded(document, release)


def _decoded(document: Any, release: ReleaseTable) -> Decoded[KubeletConfiguration]:
    missing = tuple(name for name in release.rules.missing_config_fields if name in (document or {}))
    known = {name: value for name, value in document.items() if name not in missing} if missing else document
    decoded = decode_as_go(known, KubeletConfiguration, ignored=_TYPE_META)
    return (
        msgspec.structs.replace(decoded, unknown_fields=(*decoded.unknown_fields, *missing))
        if missing
        else decoded
    )


def _kind_error(document: Any) -> tuple[str, str]:
    """The kubelet's message if a document is not a KubeletConfiguration, and the field at fault; empty if it is one."""
    if document is not None and not isinstance(document, dict):
        kind = {str: "string", bool: "bool", list: "array"}.get(type(document), "number")
        into = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        return (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type {into}",
            "",
        )
    type_meta = {name: (document or {}).get(name) or "" for name in _TYPE_META}
    for name, text in type_meta.items():
        if not isinstance(text, str):
            kind = {bool: "bool", list: "array", dict: "object"}.get(type(text), "number")
            unmarshal = f"cannot unmarshal {kind} into Go struct field .{name} of type string"
            return f"couldn't get version/kind; json parse error: json: {unmarshal}", name
    version, kind = type_meta["apiVersion"], type_meta["kind"]
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


def _read_file(file: str, warnings: list[str], release: ReleaseTable) -> KubeletConfiguration:
    document = _document_in(file, warnings)
    config = _checked(decode_kubelet_config(document, file, release), file, warnings, release)
    return with_absolute_paths(config, file)


def _document_in(file: str, warnings: list[str], *, is_found: bool = False) -> Any:
    """The configuration in a file; of a drop-in, which has no other form, the first document."""
    content = read_file(file, is_found=is_found).content
    if not content:
        raise InputError([Fault(rule=f"kubelet config file {quoted(file)} was empty", source=file)])
    if is_found:
        documents = parse_documents(content, file)
        if len(documents) > 1:
            warnings.append(f"{file}: only the first of {len(documents)} documents counts")
        return documents[0].value if documents else None
    return _configuration_in(InputFile(file, content), warnings)


def _configuration_in(file: InputFile, warnings: list[str]) -> Any:
    """The first configuration in a file of any form; the first document if there is none."""
    source, documents = file.source, []
    with suppress(InputError):  # of a form that is no YAML, or of faults that are found again below
        documents = parse_documents(file.content, source)
        first = documents[0].value if documents else None
        if not documents or (len(documents) == 1 and not _kind_error(first)[0]):
            return first
    from nodewright.documents.profiles import kubelet_forms  # noqa: PLC0415 - start-up time

    values = [document.value for document in documents]
    if not any(isinstance(value, dict) for value in values):
        values = kubelet_forms.form_documents(file.content, source)
    configs = kubelet_forms.kubelet_configs(values, source)
    if not configs:
        message, path = _kind_error(values[0])
        if isinstance(values[0], dict):
            hint = Fault(rule=kubelet_forms.unknown_form(values[0]), source=source)
            raise InputError([Fault(rule=f"failed to decode: {message}", path=path, source=source), hint])
        return values[0]
    if configs[0].note():
        warnings.append(f"{source}: {configs[0].note()}")
    if len(configs) > 1:
        warnings.append(f"{source}: only the first of {len(configs)} configurations counts")
    elif len(values) > 1:
        which = "the first" if configs[0].number == 0 else f"number {configs[0].number + 1}"
        warnings.append(f"{source}: only {which} of {len(values)} documents counts")
    return configs[0].document


def _checked(
    decoded: Decoded[KubeletConfiguration], source: str, warnings: list[str], release: ReleaseTable
) -> KubeletConfiguration:
    """The decoded configuration.

    Errors: InputError with all faults.
    """
    if decoded.faults:
        first = decoded.first_fault
        ordered = sorted(decoded.faults, key=lambda fault: fault is not first)
        decoding_faults = [
            Fault(
                rule=f"failed to decode: {fault.message}", path=fault.path, value=fault.value, source=source
            )
            for fault in ordered
        ]
        # The kubelet stops here. Validation faults of other fields are added, unless they concern a missing value.
        validation_faults = (
            fault
            for fault in complete_config(decoded.value, release=release).faults
            if fault.path and fault.value is not None
        )
        raise InputError([*decoding_faults, *(_fault(fault, source) for fault in validation_faults)])
    warnings += [f"{source}: unknown field {quoted(path)}" for path in decoded.unknown_fields]
    return decoded.value


def _loaded(config: KubeletConfiguration, source: str, host: ConfigHost, warnings: list[str]) -> LoadedConfig:
    complete = complete_config(
        config, release=host.release, machine=host.machine, cgroup_version=host.cgroup_version
    )
    if complete.faults:
        raise InputError([_fault(fault, source) for fault in complete.faults])
    warnings += _retiring_gate_warnings(complete, source)
    return LoadedConfig(config=complete.config, gates=complete.gates, warnings=tuple(warnings))


def _retiring_gate_warnings(complete: CompleteConfig, source: str) -> list[str]:
    prefix = f"{source}: " if source else ""
    return [
        f"{prefix}setting {'GA' if gate.stage == 'GA' else 'deprecated'} feature gate {gate.name}; "
        "it will be removed in a future release"
        for gate in complete.gate_settings.retiring
    ]


_FAULT_PREFIXES = {
    ConfigStage.DECODING: "failed to decode: ",
    ConfigStage.GATES: "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: ",
    ConfigStage.VALIDATION: "",
    ConfigStage.STARTUP: "",
}


def _fault(fault: ConfigFault, source: str) -> Fault:
    return Fault(
        rule=_FAULT_PREFIXES[fault.stage] + fault.text, path=fault.path, value=fault.value, source=source
    )


_PATH_FIELDS = (
    "static_pod_path",
    "tls_cert_file",
    "tls_private_key_file",
    "resolver_config",
    "volume_plugin_dir",
    "pod_logs_dir",
)


def with_absolute_paths(config: KubeletConfiguration, file: str) -> KubeletConfiguration:
    """The configuration with relative paths resolved against the file's directory."""
    relative = {
        name: path for name in _PATH_FIELDS if (path := getattr(config, name)) and not path.startswith("/")
    }
    if not relative:
        return config
    from pathlib import Path  # noqa: PLC0415 - start-up time

    root = Path(file).absolute().parent
    return msgspec.structs.replace(config, **{name: str(root / path) for name, path in relative.items()})


def _to_document(
    config: KubeletConfiguration, release: ReleaseTable, *, with_eviction: bool
) -> dict[str, Any]:
    """The configuration with its defaults, as the plain document that drop-ins patch."""
    complete = defaulted(config, resolve_gates(config.feature_gates, release=release).gates)
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


def _with_drop_ins(
    base: dict[str, Any], config_dir: "str | Path", warnings: list[str]
) -> tuple[dict[str, Any], str]:
    """The document after all drop-ins in the order of their names, and the names of those files."""
    from pathlib import Path  # noqa: PLC0415 - start-up time

    directory = Path(config_dir)
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
    # Only a configuration file has default eviction thresholds.
    merged.setdefault("evictionHard", {})
    return merged, " + ".join(used) or str(directory)


def _files_below(directory: "Path") -> "list[Path]":
    """All files of a directory and its subdirectories, each directory sorted by name."""
    files: list[Path] = []
    try:
        paths = sorted(directory.iterdir(), key=lambda path: path.name)
    except OSError as error:
        rule = f"cannot be read: {error.strerror}"
        raise InputError([Fault(rule=rule, source=str(directory))]) from None
    for path in paths:
        files += _files_below(path) if path.is_dir() and not path.is_symlink() else [path]
    return files


def _drop_in(path: "Path", warnings: list[str]) -> dict[str, Any]:
    document = _document_in(str(path), warnings, is_found=True)
    prefix = f"failed to load kubelet dropin file, path: {path}"
    if not isinstance(document, dict) or not document.get("kind"):
        rule = f"{prefix}, error: failed to load drop-in kubelet config file {path}, error Object 'Kind' is missing"
        raise InputError([Fault(rule=rule, path="kind", source=str(path))])
    if (document.get("apiVersion"), document["kind"]) != (GROUP_VERSION, KIND):
        group_version_kind = f"{document.get('apiVersion') or '/'}, Kind={document['kind']}"
        raise InputError(
            [
                Fault(
                    rule=f"{prefix}, unknown apiVersion/kind: {group_version_kind}",
                    path="apiVersion",
                    source=str(path),
                )
            ]
        )
    return document
