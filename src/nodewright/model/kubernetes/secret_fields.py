"""The fields of pods and KubeletConfigurations that may hold secrets and decide nothing about resources.

Captured profiles and journals are attached to issues and kept in repositories, so they leave these fields out:

- values of variables, commands and arguments, probes and lifecycle hooks of containers,
- annotations, except those that decide: the source of a static pod, AppArmor profiles, and nodewright's own,
- attributes of CSI and FlexVolume volumes, and messages of terminated containers,
- the URL of static pods and its headers in the kubelet's configuration.

Names of variables, references to Secrets and ConfigMaps, labels and images stay. A custom policy that reads other
annotations needs the whole pod.
"""

from typing import Any

_DECIDING_ANNOTATIONS = (
    "kubernetes.io/config.",
    "container.apparmor.security.beta.kubernetes.io/",
    "nodewright.dev/",
)
_CONTAINER_LISTS = frozenset({"containers", "initContainers", "ephemeralContainers"})
_CONTAINER_FIELDS = frozenset(
    {"command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
)  # fmt: skip
_FIELDS_BY_PARENT = {
    "metadata": frozenset({"managedFields"}),
    "kubeletConfiguration": frozenset({"staticPodURL", "staticPodURLHeader"}),
    "csi": frozenset({"volumeAttributes"}),
    "flexVolume": frozenset({"options"}),
    "terminated": frozenset({"message"}),
}


def without_secret_fields(document: Any) -> Any:
    """The document, of any kind that holds pods, pod templates or a KubeletConfiguration, without these fields.

    >>> container = {"name": "a", "args": ["--key=1"], "env": [{"name": "TOKEN", "value": "1"}]}
    >>> without_secret_fields({"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [container]}})
    {'metadata': {}, 'spec': {'containers': [{'name': 'a', 'env': [{'name': 'TOKEN'}]}]}}
    """
    return _cleaned(document, "")


def _cleaned(value: Any, name: str) -> Any:
    """The value of the field with this name."""
    if isinstance(value, dict):
        left_out = _FIELDS_BY_PARENT.get(name, frozenset())
        return type(value)(
            (key, _cleaned(item, str(key)))
            for key, item in (_deciding_metadata(value) if name == "metadata" else value).items()
            if not (key in left_out and item)
        )
    if isinstance(value, list | tuple):
        items = [_container(item) if name in _CONTAINER_LISTS else item for item in value]
        return type(value)(_cleaned(item, "") for item in items)
    return value


def _deciding_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return metadata
    kept = {key: text for key, text in annotations.items() if str(key).startswith(_DECIDING_ANNOTATIONS)}
    if not kept:
        return {key: item for key, item in metadata.items() if key != "annotations"}
    return {**metadata, "annotations": kept}


def _container(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in _CONTAINER_FIELDS}
    if isinstance(kept.get("env"), list | tuple):
        kept["env"] = [
            {key: item for key, item in variable.items() if key != "value"}
            if isinstance(variable, dict)
            else variable
            for variable in kept["env"]
        ]
    return kept
