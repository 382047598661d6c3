"""Writes `allocated_pods_state` and `actuated_pods_state` as a kubelet does."""

import json
from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.go_checkpoint import CHECKSUM_FIELD, checksum, marshal
from nodewright.documents.formats.go_json import STRING, Field, Struct
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.model.kubernetes.objects import ResourceRequirements

_FILE = Struct("state.Checkpoint", (Field("Data", "data", STRING), CHECKSUM_FIELD))


def resources_state_file(pods: Mapping[str, PodResourceInfo]) -> bytes:
    """The file for pods by uid, as the kubelet writes it.

    Follows: v1.36, pkg/kubelet/allocation/state/checkpoint.go, NewCheckpoint.

    >>> resources_state_file({}).decode()
    '{"data":"{}","checksum":694314937}'
    """
    entries = {uid: _pod_document(pod) for uid, pod in sorted(pods.items())}
    text = json.dumps({"entries": entries} if entries else {}, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return marshal({"Data": text, "Checksum": checksum(f"(string){text}")}, _FILE).encode()


def _pod_document(pod: PodResourceInfo) -> dict[str, Any]:
    return {
        "ContainerResources": {
            name: _document(resources) for name, resources in sorted(pod.containers.items())
        },
        "PodLevelResources": None if pod.pod is None else _document(pod.pod),
    }


def _document(resources: ResourceRequirements) -> dict[str, Any]:
    by_kind = (("limits", resources.limits), ("requests", resources.requests))
    return {
        kind: {name: str(amount) for name, amount in sorted(amounts.items())}
        for kind, amounts in by_kind
        if amounts
    }
