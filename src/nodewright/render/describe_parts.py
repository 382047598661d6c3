"""Variables, mounts and volumes of a pod in the words of `kubectl describe`."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.model.objects import Container, EnvVar

_UNSET = "<unset>"


def variable_text(variable: EnvVar) -> str:
    """What a variable is, or where its value comes from.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeContainerEnvVars.
    Departs: values of fields are not looked up.
    """
    told = variable.value_from or {}
    for kind, words in (("configMapKeyRef", "of config map"), ("secretKeyRef", "in secret")):
        if told.get(kind) is not None:
            key, name = told[kind].get("key") or "", told[kind].get("name") or ""
            return f"<set to the key '{key}' {words} '{name}'>  Optional: {_go(told[kind].get('optional'))}"
    if told.get("fieldRef") is not None:
        return f"({told['fieldRef'].get('apiVersion') or 'v1'}:{told['fieldRef'].get('fieldPath') or ''})"
    if told.get("resourceFieldRef") is not None:
        return f"({told['resourceFieldRef'].get('resource') or ''})"
    if told.get("fileKeyRef") is not None:
        ref = told["fileKeyRef"]
        return f"<set to the key '{ref.get('key') or ''}' of file '{ref.get('path') or ''}'>"
    return variable.value


def mount_lines(container: Container) -> Iterator[str]:
    """Where a container sees which volume, by path.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeContainerVolumes.
    """
    for one in sorted(container.volume_mounts, key=lambda each: str(each.get("mountPath") or "")):
        flags = ["ro" if one.get("readOnly") else "rw"]
        if one.get("subPath"):
            flags.append(f'path="{one["subPath"]}"')
        yield f"{one.get('mountPath') or ''} from {one.get('name') or ''} ({','.join(flags)})"


def volume_rows(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a volume is.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeVolumes.
    """
    for kind, (words, rows) in _KINDS.items():
        source = volume.get(kind)
        if source is not None:
            yield "Type", words
            yield from rows(source)
            return
    yield "Type", "<unknown>"


def _host_path(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Path", str(source.get("path") or "")
    yield "HostPathType", str(source.get("type") or "")


def _empty(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Medium", str(source.get("medium") or "")
    yield "SizeLimit", str(source.get("sizeLimit") or _UNSET)


def _secret(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "SecretName", str(source.get("secretName") or "")
    yield "Optional", _go(source.get("optional"))


def _config_map(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Name", str(source.get("name") or "")
    yield "Optional", _go(source.get("optional"))


def _downward(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(source.get("items") or ()):
        what = item.get("fieldRef") or item.get("resourceFieldRef") or {}
        field = what.get("fieldPath") or what.get("resource") or ""
        yield "" if number else "Items", f"{field} -> {item.get('path') or ''}"


def _projected(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in source.get("sources") or ():
        if one.get("secret") is not None:
            yield "SecretName", str(one["secret"].get("name") or "")
        elif one.get("configMap") is not None:
            yield "ConfigMapName", str(one["configMap"].get("name") or "")
            yield "Optional", _go(one["configMap"].get("optional"))
        elif one.get("downwardAPI") is not None:
            yield "DownwardAPI", "true"


def _go(value: object) -> str:
    return "true" if value else "false"


_KINDS = {
    "hostPath": ("HostPath (bare host directory volume)", _host_path),
    "emptyDir": ("EmptyDir (a temporary directory that shares a pod's lifetime)", _empty),
    "secret": ("Secret (a volume populated by a Secret)", _secret),
    "configMap": ("ConfigMap (a volume populated by a ConfigMap)", _config_map),
    "downwardAPI": ("DownwardAPI (a volume populated by information about the pod)", _downward),
    "projected": ("Projected (a volume that contains injected data from multiple sources)", _projected),
}
