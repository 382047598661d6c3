"""The files of volumes that are made of objects: ConfigMaps, Secrets, the pod itself, or several of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodewright.core.environment.downward import file_field, file_resource
from nodewright.core.environment.surroundings import Lacking, Surroundings, config_map, secret
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import Pod
from nodewright.values.golang import clean_path

DEFAULT_MODE = 0o644
_LONGEST_PATH, _LONGEST_NAME = 4096, 255


class FileContent(NamedTuple):
    """What a file says, and who may read it."""

    data: bytes
    mode: int = DEFAULT_MODE


def payload(volume: Mapping[str, Any], pod: Pod, around: Surroundings) -> dict[str, FileContent] | Lacking:
    """The files of a volume by path, or what lacks.

    Follows: v1.36, pkg/volume/{configmap,secret,downwardapi,projected}, MakePayload and CollectData.
    Departs: tokens, certificates and trust bundles are refused: they come from an API server.
    """
    if volume.get("projected") is not None:
        found = _projected(volume["projected"], pod, around)
    else:
        found = _source(volume, _mode(volume), pod, around)
    return found if isinstance(found, Lacking) else _checked(found)


def _projected(told: Mapping[str, Any], pod: Pod, around: Surroundings) -> dict[str, FileContent] | Lacking:
    """Several sources in one; all that lacks is told at once."""
    mode = told.get("defaultMode")
    found: dict[str, FileContent] = {}
    lacks: list[str] = []
    for source in told.get("sources") or ():
        files = _source(source, DEFAULT_MODE if mode is None else mode, pod, around)
        if isinstance(files, Lacking):
            lacks.append(files.message)
        else:
            found |= files
    return _all_lacking(lacks) if lacks else found


def _mode(volume: Mapping[str, Any]) -> int:
    for name in ("configMap", "secret", "downwardAPI"):
        mode = (volume.get(name) or {}).get("defaultMode")
        if mode is not None:
            return int(mode)
    return DEFAULT_MODE


def _source(
    told: Mapping[str, Any], mode: int, pod: Pod, around: Surroundings
) -> dict[str, FileContent] | Lacking:
    if told.get("configMap") is not None:
        one = told["configMap"]
        return _of_config_map(one, config_map(around, one.get("name") or ""), mode)
    if told.get("secret") is not None:
        one = told["secret"]
        return _of_secret(one, secret(around, one.get("secretName") or one.get("name") or ""), mode)
    if told.get("downwardAPI") is not None:
        return _of_pod(told["downwardAPI"], mode, pod, around)
    kind = next((name for name, value in told.items() if name != "name" and value is not None), "nothing")
    return Lacking(f"{kind} needs an API server, and there is none")


def _of_config_map(
    told: Mapping[str, Any], found: ConfigMap | Lacking, mode: int
) -> dict[str, FileContent] | Lacking:
    if isinstance(found, Lacking):
        if not told.get("optional"):
            return found
        found = ConfigMap()
    entries = {**{key: text.encode() for key, text in found.data.items()}, **found.binary_data}
    chosen = dict(entries)
    # Where keys are chosen, a text comes before bytes of the same name.
    chosen |= {key: text.encode() for key, text in found.data.items()}
    lack = "configmap references non-existent config key: "
    return _files(told, chosen if told.get("items") else entries, mode, lack)


def _of_secret(
    told: Mapping[str, Any], found: Secret | Lacking, mode: int
) -> dict[str, FileContent] | Lacking:
    if isinstance(found, Lacking):
        if not told.get("optional"):
            return found
        found = Secret()
    return _files(told, found.content, mode, "references non-existent secret key: ")


def _files(
    told: Mapping[str, Any], entries: Mapping[str, bytes], mode: int, lack: str
) -> dict[str, FileContent] | Lacking:
    """All entries by their keys, or those chosen at their paths."""
    items = told.get("items") or ()
    if not items:
        return {key: FileContent(entries[key], mode) for key in sorted(entries)}
    files = {}
    for item in items:
        key, own_mode = item.get("key") or "", item.get("mode")
        if key in entries:
            files[item.get("path") or ""] = FileContent(entries[key], mode if own_mode is None else own_mode)
        elif not told.get("optional"):
            return Lacking(f"{lack}{key}")
    return files


def _of_pod(
    told: Mapping[str, Any], mode: int, pod: Pod, around: Surroundings
) -> dict[str, FileContent] | Lacking:
    files: dict[str, FileContent] = {}
    lacks: list[str] = []
    for item in told.get("items") or ():
        text: str | Lacking = ""
        if item.get("fieldRef") is not None:
            text = file_field(item["fieldRef"].get("fieldPath") or "", pod)
        elif item.get("resourceFieldRef") is not None:
            text = file_resource(item["resourceFieldRef"], pod, around)
        own_mode = item.get("mode")
        if isinstance(text, Lacking):
            lacks.append(text.message)
        else:
            content = FileContent(text.encode(), mode if own_mode is None else own_mode)
            files[clean_path(item.get("path") or "")] = content
    return _all_lacking(lacks) if lacks else files


def _all_lacking(messages: list[str]) -> Lacking:
    """Several messages as Kubernetes puts them together.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.
    """
    once = list(dict.fromkeys(messages))
    return Lacking(once[0] if len(once) == 1 else f"[{', '.join(once)}]")


def _checked(files: dict[str, FileContent]) -> dict[str, FileContent] | Lacking:
    """The files at clean paths; none leaves its volume.

    Follows: v1.36, pkg/volume/util/atomic_writer.go, validatePath.
    """
    for path in files:
        wrong = _wrong_path(path)
        if wrong:
            return Lacking(f"invalid path: {wrong}")
    return {clean_path(path): content for path, content in files.items()}


def _wrong_path(path: str) -> str:
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
