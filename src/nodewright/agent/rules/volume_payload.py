"""The files of configMap, secret, downwardAPI and projected volumes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodewright.agent.rules.environment_variables import volume_field, volume_resource
from nodewright.agent.rules.value_sources import (
    ReferenceSources,
    UnresolvedReference,
    common_user,
    config_map,
    is_omitted,
    secret,
    token_spec,
)
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.golang import clean_path

DEFAULT_FILE_MODE = 0o644
_LONGEST_PATH, _LONGEST_NAME = 4096, 255


class FileContent(NamedTuple):
    """The content and the mode of a file, and the user who owns it; None: root."""

    data: bytes
    mode: int = DEFAULT_FILE_MODE
    owner: int | None = None


def volume_payload(
    volume: Mapping[str, Any], pod: Pod, sources: ReferenceSources
) -> dict[str, FileContent] | UnresolvedReference:
    """The files of a volume by path, or the unresolved references.

    Follows: v1.36, pkg/volume/{configmap,secret,downwardapi,projected}, MakePayload and CollectData.
    Departs: trust bundles and pod certificates are refused; both are off by default in a kubelet.
    """
    if volume.get("projected") is not None:
        files = _projected(volume["projected"], pod, sources)
    else:
        files = _source(volume, _mode(volume), pod, sources)
    return files if isinstance(files, UnresolvedReference) else _checked(files)


def _projected(
    spec: Mapping[str, Any], pod: Pod, sources: ReferenceSources
) -> dict[str, FileContent] | UnresolvedReference:
    """The files of a projected volume; all unresolved references are reported at once."""
    mode = spec.get("defaultMode")
    files_by_path: dict[str, FileContent] = {}
    missing: list[str] = []
    for source in spec.get("sources") or ():
        files = _source(source, DEFAULT_FILE_MODE if mode is None else mode, pod, sources)
        if isinstance(files, UnresolvedReference):
            missing.append(files.message)
        else:
            files_by_path |= files
    return _aggregated(missing) if missing else files_by_path


def _mode(volume: Mapping[str, Any]) -> int:
    for name in ("configMap", "secret", "downwardAPI"):
        mode = (volume.get(name) or {}).get("defaultMode")
        if mode is not None:
            return int(mode)
    return DEFAULT_FILE_MODE


def _source(
    spec: Mapping[str, Any], mode: int, pod: Pod, sources: ReferenceSources
) -> dict[str, FileContent] | UnresolvedReference:
    if spec.get("configMap") is not None:
        config = spec["configMap"]
        return _of_config_map(config, config_map(sources, config.get("name") or ""), mode)
    if spec.get("secret") is not None:
        config = spec["secret"]
        return _of_secret(config, secret(sources, config.get("secretName") or config.get("name") or ""), mode)
    if spec.get("downwardAPI") is not None:
        return _of_pod(spec["downwardAPI"], mode, pod, sources)
    if spec.get("serviceAccountToken") is not None:
        return _token(spec["serviceAccountToken"], mode, pod, sources)
    kind = next((name for name, value in spec.items() if name != "name" and value is not None), "nothing")
    return UnresolvedReference(f"{kind} is not supported")


def _token(
    spec: Mapping[str, Any], mode: int, pod: Pod, sources: ReferenceSources
) -> dict[str, FileContent] | UnresolvedReference:
    """A token's file; only the pod's user and group can read it, if the pod has one.

    Follows: v1.36, pkg/volume/projected/projected.go, collectData.
    """
    token = sources.tokens.get(token_spec(spec))
    if token is None:
        return UnresolvedReference("serviceAccountToken needs an API server, and there is none")
    if isinstance(token, UnresolvedReference):
        return token
    owner, context = common_user(pod), pod.spec.security_context
    has_group = context is not None and context.fs_group is not None
    own_mode = 0o600 if owner is not None or has_group else mode
    return {spec.get("path") or "": FileContent(token.encode(), own_mode, owner)}


def _of_config_map(
    spec: Mapping[str, Any], source_object: ConfigMap | UnresolvedReference, mode: int
) -> dict[str, FileContent] | UnresolvedReference:
    if isinstance(source_object, UnresolvedReference):
        if not is_omitted(spec, source_object):
            return source_object
        source_object = ConfigMap()
    entries = {
        **{key: text.encode() for key, text in source_object.data.items()},
        **source_object.binary_data,
    }
    selectable = dict(entries)
    # For selected keys, text takes precedence over binary data of the same key.
    selectable |= {key: text.encode() for key, text in source_object.data.items()}
    missing_key = "configmap references non-existent config key: "
    return _files(spec, selectable if spec.get("items") else entries, mode, missing_key)


def _of_secret(
    spec: Mapping[str, Any], source_object: Secret | UnresolvedReference, mode: int
) -> dict[str, FileContent] | UnresolvedReference:
    if isinstance(source_object, UnresolvedReference):
        if not is_omitted(spec, source_object):
            return source_object
        source_object = Secret()
    return _files(spec, source_object.content, mode, "references non-existent secret key: ")


def _files(
    spec: Mapping[str, Any], entries: Mapping[str, bytes], mode: int, missing_key: str
) -> dict[str, FileContent] | UnresolvedReference:
    """All entries by key, or the selected items at their paths."""
    items = spec.get("items") or ()
    if not items:
        return {key: FileContent(entries[key], mode) for key in sorted(entries)}
    files = {}
    for item in items:
        key, own_mode = item.get("key") or "", item.get("mode")
        if key in entries:
            files[item.get("path") or ""] = FileContent(entries[key], mode if own_mode is None else own_mode)
        elif not spec.get("optional"):
            return UnresolvedReference(f"{missing_key}{key}")
    return files


def _of_pod(
    spec: Mapping[str, Any], mode: int, pod: Pod, sources: ReferenceSources
) -> dict[str, FileContent] | UnresolvedReference:
    files: dict[str, FileContent] = {}
    missing: list[str] = []
    for item in spec.get("items") or ():
        text: str | UnresolvedReference = ""
        if item.get("fieldRef") is not None:
            text = volume_field(item["fieldRef"].get("fieldPath") or "", pod)
        elif item.get("resourceFieldRef") is not None:
            text = volume_resource(item["resourceFieldRef"], pod, sources)
        own_mode = item.get("mode")
        if isinstance(text, UnresolvedReference):
            missing.append(text.message)
        else:
            content = FileContent(text.encode(), mode if own_mode is None else own_mode)
            files[clean_path(item.get("path") or "")] = content
    return _aggregated(missing) if missing else files


def _aggregated(messages: list[str]) -> UnresolvedReference:
    """Several messages as one, aggregated as in Kubernetes.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.
    """
    distinct = list(dict.fromkeys(messages))
    return UnresolvedReference(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")


def _checked(files: dict[str, FileContent]) -> dict[str, FileContent] | UnresolvedReference:
    """The files at normalized paths; a path that leaves the volume is refused.

    Follows: v1.36, pkg/volume/util/atomic_writer.go, validatePath.
    """
    for path in files:
        fault = _path_fault(path)
        if fault:
            return UnresolvedReference(f"invalid path: {fault}")
    return {clean_path(path): content for path, content in files.items()}


def _path_fault(path: str) -> str:
    names = path.split("/")
    if not path:
        return 'must not be empty: ""'
    if path.startswith("/"):
        return f"must be relative path: {path}"
    if len(path.encode()) > _LONGEST_PATH:
        return f"must be less than or equal to {_LONGEST_PATH} characters"
    if ".." in names:
        return f"must not contain '..': {path}"
    if any(len(name.encode()) > _LONGEST_NAME for name in names):
        return f"filenames must be less than or equal to {_LONGEST_NAME} characters"
    return f"must not start with '..': {path}" if names[0].startswith("..") else ""
