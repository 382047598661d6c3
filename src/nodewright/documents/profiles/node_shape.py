"""The shape of a node: its profile without what does not decide about the next pod, so that equal nodes share answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.documents.formats.decode import without_nulls

_HOSTNAME = "kubernetes.io/hostname"
_IDENTITY_ANNOTATIONS = tuple(f"kubernetes.io/config.{name}" for name in ("hash", "seen", "mirror"))
_IDLE_POD_FIELDS = frozenset(
    {
        # Where the pod runs, and what its containers see there.
        *("nodeName", "hostname", "subdomain", "hostAliases", "dnsPolicy", "dnsConfig", "serviceAccountName"),
        *(
            "image",
            "imagePullPolicy",
            "env",
            "envFrom",
            "workingDir",
            "volumes",
            "volumeMounts",
            "volumeDevices",
        ),
        *("terminationMessagePath", "terminationMessagePolicy", "imagePullSecrets", "securityContext"),
        # What decided when it was scheduled.
        *("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "schedulerName"),
        # Identities and times of its containers.
        *("containerID", "imageID", "startedAt", "finishedAt", "startTime", "restartCount", "lastState"),
        *("podIP", "hostIP", "conditions", "reason", "message"),
    }
)


def shape_document(
    document: Mapping[str, Any], pod_shapes: Sequence[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The document of a NodeProfile without names, uids and times; ``pod_shapes`` are those of its pods, if known.

    Allocations name pods by their position, and devices by their rank among those of the resource: device managers
    choose by the order of ids. Not equal are nodes with other labels, except the host name. So the shape does not decide
    about a pod that selects its node by name; and which of several equal pods is preempted is not part of the answer.
    """
    if pod_shapes is None:
        document = without_nulls(document)
    spec = document.get("spec", {})
    pods = spec.get("pods", ())
    positions = {name: str(index) for index, pod in enumerate(pods) for name in _references(pod)}
    ranks = _device_ranks(spec)
    name = document.get("metadata", {}).get("name", "")
    shape = {key: value for key, value in spec.items() if key not in _REPLACED}
    labels = spec.get("labels", {})
    shape |= {
        "labels": {key: value for key, value in labels.items() if key != _HOSTNAME or value != name},
        "taints": [_without(taint, ("timeAdded",)) for taint in spec.get("taints", ())],
        "pods": [pod_shape(pod) for pod in pods] if pod_shapes is None else pod_shapes,
        "allocations": [
            _allocation_shape(entry, positions, ranks) for entry in spec.get("allocations") or ()
        ],
        "isReplayed": spec.get("allocations") is None,
        "notJudged": [_unknown_shape(entry, positions) for entry in spec.get("notJudged", ())],
        **_device_shapes(spec, ranks),
    }
    return {"spec": shape}


def _unknown_shape(entry: Mapping[str, Any], positions: Mapping[str, str]) -> dict[str, Any]:
    return {"part": entry["part"], "names": [positions.get(name, name) for name in entry.get("names", ())]}


def _device_shapes(spec: Mapping[str, Any], ranks: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    devices, gone = spec.get("devices", {}), spec.get("goneDevices", {})
    return {
        "devices": {
            resource: [{**device, "id": ranks[resource][device["id"]]} for device in listed]
            for resource, listed in devices.items()
        },
        "goneDevices": {
            resource: [ranks[resource][name] for name in names] for resource, names in gone.items()
        },
    }


_REPLACED = frozenset(
    {"labels", "taints", "pods", "allocations", "devices", "goneDevices", "notJudged", "sources"}
)


def _references(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """How allocations name the pod."""
    meta = pod.get("metadata", {})
    return f"{meta.get('namespace') or 'default'}/{meta.get('name', '')}", meta.get("uid", "")


def _device_ranks(spec: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The ranks of the devices' ids, by resource and id, in digits that sort as the ids do."""
    ids: dict[str, set[str]] = {}
    for resource, devices in spec.get("devices", {}).items():
        ids.setdefault(resource, set()).update(device["id"] for device in devices)
    for resource, names in spec.get("goneDevices", {}).items():
        ids.setdefault(resource, set()).update(names)
    return {
        resource: {name: f"{rank:06}" for rank, name in enumerate(sorted(names))}
        for resource, names in ids.items()
    }


def _allocation_shape(
    entry: Mapping[str, Any], positions: Mapping[str, str], ranks: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    devices = {
        resource: [ranks.get(resource, {}).get(name, name) for name in names]
        for resource, names in entry.get("devices", {}).items()
    }
    return {**entry, "pod": positions.get(entry["pod"], entry["pod"]), "devices": devices}


def pod_shape(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What matters of a pod to the next one: it holds and requests resources, and may be preempted."""
    meta = pod.get("metadata", {})
    return {
        # The kubelet's own annotations tell static pods from others; their values are hashes and times.
        "annotations": {
            key: "" if key in _IDENTITY_ANNOTATIONS else text
            for key, text in meta.get("annotations", {}).items()
        },
        "isTerminating": bool(meta.get("deletionTimestamp")),
        "spec": _deciding(pod.get("spec", {})),
        "status": _deciding(pod.get("status", {})),
    }


def _deciding(value: Any) -> Any:
    """The value without the fields that do not decide about other pods."""
    if isinstance(value, dict):
        return {key: _deciding(item) for key, item in value.items() if key not in _IDLE_POD_FIELDS}
    if isinstance(value, list | tuple):
        return [_deciding(item) for item in value]
    return value


def _without(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in names}
