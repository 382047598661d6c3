"""The admitted and the actuated resources of pods: `allocated_pods_state`, `actuated_pods_state`; in 1.32
`pod_status_manager_state`.
"""

import json
from collections.abc import Mapping

import msgspec

from nodewright.documents.formats.go_checkpoint import CHECKSUM_FIELD, CORRUPTED, checksum
from nodewright.documents.formats.go_json import (
    STRING,
    Field,
    GoJSONError,
    Struct,
    parse,
    unmarshal,
    unmarshal_type_error,
    zero_value,
)
from nodewright.documents.formats.kubelet_json import decode_as_go, json_kind
from nodewright.model.kubernetes.objects import ResourceList, ResourceRequirements
from nodewright.model.reasons.kubelet_start import FormatTried, StateFile, StateFileDamaged
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.golang import saturated_int


class PodResourceInfo(msgspec.Struct, frozen=True):
    """The resources of a pod's containers by name, and of the pod as a whole if it has any."""

    containers: Mapping[str, ResourceRequirements] = {}
    pod: ResourceRequirements | None = None


RESOURCE_FILES = (StateFile.ALLOCATED, StateFile.ACTUATED, StateFile.STATUS_MANAGER)


def resource_files_read(gates: FeatureGates) -> tuple[StateFile, ...]:
    """Those of the files that a kubelet with these gates reads; one that it does not read cannot stop its start.

    Follows: v1.32, status/status_manager.go, Start; v1.33, allocation/allocation_manager.go, newStateImpl; v1.36,
        kuberuntime/kuberuntime_manager.go, NewKubeGenericRuntimeManager.
    """
    if not gates["InPlacePodVerticalScaling"]:
        return ()
    if gates.rules.allocated_pods_files:
        return StateFile.ALLOCATED, StateFile.ACTUATED
    return (StateFile.STATUS_MANAGER,)


def read_resources_state(
    content: bytes, path: str, *, file: StateFile = StateFile.ALLOCATED
) -> Verdict[dict[str, PodResourceInfo]]:
    """The pods' resources by uid, or why the kubelet does not start with the file; the file is not changed.

    Follows: v1.36, pkg/kubelet/allocation/state/state_checkpoint.go, restoreState.
    Departs: names of inner fields must have the case in which the kubelet writes them.
    """
    value = zero_value(_FILE)
    error = unmarshal(content, _FILE, value)
    if error is not None:
        return _damaged(FormatTried(version=1, error=error), path, file)
    text, stored = value["Data"], value["Checksum"]
    if stored != (computed := _checksum(text)):
        tried = FormatTried(version=1, error=CORRUPTED, checksum=stored, computed=computed)
        return _damaged(tried, path, file)
    is_old = file is StateFile.STATUS_MANAGER
    pods = _parsed(text, _StatusCheckpoint if is_old else _Checkpoint)
    if isinstance(pods, str):
        what = "pod resource allocation info" if is_old else "pod resource information"
        tried = FormatTried(version=1, error=f"failed to get {what}: {pods}")
        return _damaged(tried, path, file)
    return Granted(pods)


def _damaged(tried: FormatTried, path: str, file: StateFile) -> Refused:
    return Refused((StateFileDamaged(file=file, path=path, tried=(tried,)),))


def _parsed(text: str, schema: "type[_Checkpoint | _StatusCheckpoint]") -> dict[str, PodResourceInfo] | str:
    """The pods, or Go's error message."""
    try:
        parse(text.encode())
    except GoJSONError as error:
        return str(error)
    try:
        document = json.loads(text, parse_int=saturated_int)
    except RecursionError:  # Go's limit of depth is ten times that of Python.
        return "exceeded max depth"
    if not isinstance(document, dict | None):
        name = "PodResourceCheckpointInfo" if schema is _Checkpoint else "PodResourceAllocationInfo"
        return unmarshal_type_error(json_kind(document), f"state.{name}")
    decoded = decode_as_go(document or {}, schema)
    if decoded.first_fault:
        return decoded.first_fault.message
    if isinstance(decoded.value, _StatusCheckpoint):
        return {
            uid: PodResourceInfo({name: _requirements(resources) for name, resources in containers.items()})
            for uid, containers in decoded.value.entries.items()
        }
    return {
        uid: PodResourceInfo(
            {name: _requirements(resources) for name, resources in pod.containers.items()},
            None if pod.pod is None else _requirements(pod.pod),
        )
        for uid, pod in decoded.value.entries.items()
    }


class _Requirements(msgspec.Struct, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class _PodResourceInfoJSON(msgspec.Struct, frozen=True):
    containers: dict[str, _Requirements] = msgspec.field(default_factory=dict, name="ContainerResources")
    pod: _Requirements | None = msgspec.field(default=None, name="PodLevelResources")


class _Checkpoint(msgspec.Struct, frozen=True):
    entries: dict[str, _PodResourceInfoJSON] = {}


class _StatusCheckpoint(msgspec.Struct, frozen=True):
    entries: dict[str, dict[str, _Requirements]] = msgspec.field(
        default_factory=dict, name="allocationEntries"
    )


def _requirements(decoded: _Requirements) -> ResourceRequirements:
    return ResourceRequirements(requests=decoded.requests, limits=decoded.limits)


def _checksum(text: str) -> int:
    return checksum(f"(string){text}")


_FILE = Struct("state.Checkpoint", (Field("Data", "data", STRING), CHECKSUM_FIELD))
