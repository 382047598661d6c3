"""`allocated_pods_state`, `actuated_pods_state`: the requests and limits that pods were let in with, and really run with."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from nodewright.model.objects import ResourceList, ResourceRequirements
from nodewright.model.state_reasons import FormatTried, StateFile, StateFileDamaged
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.world.gojson import decode_as_go
from nodewright.world.state.formats import CHECKSUM_FIELD, CORRUPTED
from nodewright.world.state.godecode import unmarshal
from nodewright.world.state.goencode import checksum, marshal
from nodewright.world.state.gosyntax import GoJSONError, parse
from nodewright.world.state.gotypes import TEXT, Field, Struct, zero


class PodResources(msgspec.Struct, frozen=True):
    """The resources of a pod's containers by name, and of the pod as a whole if it has any."""

    containers: Mapping[str, ResourceRequirements] = {}
    pod: ResourceRequirements | None = None


def resources_state_file(pods: Mapping[str, PodResources]) -> bytes:
    """The file as the kubelet writes it, of pods by uid.

    Follows: v1.36, pkg/kubelet/allocation/state/checkpoint.go, NewCheckpoint.

    >>> resources_state_file({}).decode()
    '{"data":"{}","checksum":694314937}'
    """
    entries = {uid: _pod_document(one) for uid, one in sorted(pods.items())}
    text = json.dumps({"entries": entries} if entries else {}, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return marshal({"Data": text, "Checksum": _checksum(text)}, _FILE).encode()


def read_resources_state(
    content: bytes, path: str, *, file: StateFile = StateFile.ALLOCATED
) -> Verdict[dict[str, PodResources]]:
    """The pods' resources by uid, or why the kubelet does not start with the file. It is left as it is.

    Follows: v1.36, pkg/kubelet/allocation/state/state_checkpoint.go, restoreState.
    Departs: names of fields within are taken as they are written by the kubelet only, in their case.
    """
    value = zero(_FILE)
    error = unmarshal(content, _FILE, value)
    if error is not None:
        return _damaged(FormatTried(version=1, error=error), path, file)
    text, stored = value["Data"], value["Checksum"]
    if stored != (computed := _checksum(text)):
        tried = FormatTried(version=1, error=CORRUPTED, checksum=stored, computed=computed)
        return _damaged(tried, path, file)
    found = _parsed(text)
    if isinstance(found, str):
        tried = FormatTried(version=1, error=f"failed to get pod resource information: {found}")
        return _damaged(tried, path, file)
    return Granted(found)


def _damaged(tried: FormatTried, path: str, file: StateFile) -> Refused:
    return Refused((StateFileDamaged(file=file, path=path, tried=(tried,)),))


def _parsed(text: str) -> dict[str, PodResources] | str:
    """The pods, or what Go says against the text."""
    try:
        parse(text.encode())
    except GoJSONError as error:
        return str(error)
    document = json.loads(text)
    if not isinstance(document, dict | None):
        into = "Go value of type state.PodResourceCheckpointInfo"
        return f"json: cannot unmarshal {_kind(document)} into {into}"
    decoded = decode_as_go(document or {}, _Checkpoint)
    if decoded.first:
        return decoded.first.text
    return {
        uid: PodResources(
            {name: _requirements(one) for name, one in pod.containers.items()},
            None if pod.pod is None else _requirements(pod.pod),
        )
        for uid, pod in decoded.value.entries.items()
    }


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


class _Requirements(msgspec.Struct, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class _PodResourceInfo(msgspec.Struct, frozen=True):
    containers: dict[str, _Requirements] = msgspec.field(default_factory=dict, name="ContainerResources")
    pod: _Requirements | None = msgspec.field(default=None, name="PodLevelResources")


class _Checkpoint(msgspec.Struct, frozen=True):
    entries: dict[str, _PodResourceInfo] = {}


def _requirements(read: _Requirements) -> ResourceRequirements:
    return ResourceRequirements(requests=read.requests, limits=read.limits)


def _pod_document(pod: PodResources) -> dict[str, Any]:
    return {
        "ContainerResources": {name: _document(one) for name, one in sorted(pod.containers.items())},
        "PodLevelResources": None if pod.pod is None else _document(pod.pod),
    }


def _document(resources: ResourceRequirements) -> dict[str, Any]:
    by_kind = (("limits", resources.limits), ("requests", resources.requests))
    return {
        kind: {name: str(amount) for name, amount in sorted(amounts.items())}
        for kind, amounts in by_kind
        if amounts
    }


def _checksum(text: str) -> int:
    return checksum(f"(string){text}")


_FILE = Struct("state.Checkpoint", (Field("Data", "data", TEXT), CHECKSUM_FIELD))
