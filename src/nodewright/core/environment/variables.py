"""The variables of a container, and its command and paths with them filled in."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.core.environment.downward import variable_field, variable_resource
from nodewright.core.environment.env_files import value_in
from nodewright.core.environment.expansion import expand, expanded
from nodewright.core.environment.surroundings import Lacking, Surroundings, config_map, secret
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import Container, EnvVar, Pod
from nodewright.values.golang import quoted

_CONFIG_MAP, _SECRET = "ConfigMap", "Secret"


def variables(pod: Pod, container: Container, around: Surroundings) -> dict[str, str] | Lacking:
    """The environment of a container, in the order of its first mention; or what lacks.

    Those of whole ConfigMaps and Secrets come first; a later one of the same name takes an earlier one's place, and
    references see those that come before.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
    Departs: there are no services, hence no variables of them; the keys of a ConfigMap or Secret come sorted.
    """
    found: dict[str, str] = {}
    for source in container.env_from:
        entries = _whole(source, around)
        if isinstance(entries, Lacking):
            return entries
        found |= {f"{source.get('prefix') or ''}{key}": entries[key] for key in sorted(entries)}
    for variable in container.env:
        value = _value(variable, found, pod, container, around)
        if isinstance(value, Lacking):
            return value
        if value is not None:
            found[variable.name] = value
    return found


def _whole(source: Mapping[str, Any], around: Surroundings) -> Mapping[str, str] | Lacking:
    """All texts of a ConfigMap or a Secret; none where it is not there and need not be."""
    for key, kind in (("configMapRef", _CONFIG_MAP), ("secretRef", _SECRET)):
        told = source.get(key)
        if told is not None:
            found = _object(kind, told, around)
            return ({} if told.get("optional") else found) if isinstance(found, Lacking) else _texts(found)
    return {}


def _value(
    variable: EnvVar, so_far: Mapping[str, str], pod: Pod, container: Container, around: Surroundings
) -> str | Lacking | None:
    """What a variable says; None: it is left out, since what it refers to is not there and need not be."""
    told = variable.value_from or {}
    if variable.value:
        return expanded(variable.value, so_far)
    if told.get("fieldRef") is not None:
        return variable_field(told["fieldRef"], pod, around)
    if told.get("resourceFieldRef") is not None:
        return variable_resource(told["resourceFieldRef"], pod, container, around)
    if told.get("configMapKeyRef") is not None:
        return _entry(_CONFIG_MAP, told["configMapKeyRef"], pod, around)
    if told.get("secretKeyRef") is not None:
        return _entry(_SECRET, told["secretKeyRef"], pod, around)
    if told.get("fileKeyRef") is not None:
        return _in_file(told["fileKeyRef"], around)
    return ""


def _entry(kind: str, told: Mapping[str, Any], pod: Pod, around: Surroundings) -> str | Lacking | None:
    """One text of a ConfigMap or a Secret."""
    found = _object(kind, told, around)
    if isinstance(found, Lacking):
        return None if told.get("optional") else found
    key = told.get("key") or ""
    texts = _texts(found)
    if key in texts:
        return texts[key]
    where = f"{kind} {pod.metadata.namespace}/{told.get('name') or ''}"
    return None if told.get("optional") else Lacking(f"couldn't find key {key} in {where}")


def _in_file(told: Mapping[str, Any], around: Surroundings) -> str | Lacking | None:
    """One variable of a file in a volume."""
    volume, path, key = (told.get(name) or "" for name in ("volumeName", "path", "key"))
    text = around.env_files.get((volume, path))
    if text is None:
        return Lacking(f"cannot find the volume {quoted(volume)} referenced by FileKeyRef")
    value = text if isinstance(text, Lacking) else value_in(text, key)
    if isinstance(value, Lacking):
        return Lacking("couldn't parse env file")
    if not value:
        missing = f"environment variable key {quoted(key)} not found in file {quoted(path)}"
        return None if told.get("optional") else Lacking(missing)
    return value


def _object(kind: str, told: Mapping[str, Any], around: Surroundings) -> ConfigMap | Secret | Lacking:
    name = told.get("name") or ""
    return config_map(around, name) if kind == _CONFIG_MAP else secret(around, name)


def _texts(found: ConfigMap | Secret) -> Mapping[str, str]:
    if isinstance(found, ConfigMap):
        return found.data
    return {key: value.decode(errors="surrogateescape") for key, value in found.content.items()}


def command_and_args(container: Container, env: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command and the arguments with references filled in.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerCommandAndArgs.

    >>> command_and_args(Container(command=("echo",), args=("$(A)$(B)",)), {"A": "1"})
    (('echo',), ('1$(B)',))
    """
    command = tuple(expanded(one, env) for one in container.command)
    return command, tuple(expanded(one, env) for one in container.args)


def static_command(command: tuple[str, ...], container: Container) -> tuple[str, ...]:
    """The command of a probe: with the values that variables have in the manifest, as they stand there.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerCommandOnlyStatic.
    """
    values = {one.name: one.value for one in container.env}
    return tuple(expanded(one, values) for one in command)


def sub_path(mount: Mapping[str, Any], env: Mapping[str, str]) -> str | Lacking:
    """The path below its volume that a mount shows; every variable in it needs a value.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerVolumeMounts;
        pkg/kubelet/kubelet_pods.go, makeMounts.

    >>> sub_path({"subPathExpr": "$(A)/$(B)"}, {"A": "1"})
    Lacking(message='missing value for B')
    """
    path: str = mount.get("subPath") or ""
    if mount.get("subPathExpr"):
        missing: set[str] = set()

        def value_of(name: str) -> str:
            if not env.get(name):
                missing.add(name)
            return env.get(name, "")

        path = expand(mount["subPathExpr"], value_of)
        if missing:
            return Lacking(f"missing value for {', '.join(sorted(missing))}")
    if path.startswith("/"):
        return Lacking(f"error SubPath `{path}` must not be an absolute path")
    if ".." in _parts(path):
        return Lacking(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


def _parts(path: str) -> Iterator[str]:
    yield from path.split("/")
