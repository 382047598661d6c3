"""`cpu_manager_state`: the shared pool, and the exclusive CPUs of containers and pods."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.go_checkpoint import (
    CHECKSUM_FIELD,
    CheckpointFormat,
    DataCheckpointFormat,
    load_checkpoint,
)
from nodewright.documents.formats.go_json import (
    INT,
    STRING,
    Converted,
    Field,
    MapOf,
    Struct,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.model.errors import Fault, InputError
from nodewright.model.reasons.kubelet_start import (
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateFile,
    StatePolicyDiffers,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.golang import NumberError, parse_int, quoted
from nodewright.model.values.idset import LARGEST_ID, CPUSet


class ContainerName(NamedTuple):
    """A container by its pod's uid and its name."""

    pod: str
    container: str


class CPUStateReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet settings that decide how the file is read."""

    path: str
    policy: str
    pod_level: bool = False
    """Whether the gate PodLevelResourceManagers is on."""
    container_names: Mapping[str, ContainerName] = msgspec.field(default_factory=dict)
    """The runtime's containers by id: files of the oldest format name containers only by id."""
    rules: ReleaseRules = NEWEST.rules


class CPUListError(ValueError):
    """A text that the kubelet cannot parse as a CPU set; the message is the kubelet's."""


def cpu_state_file(
    state: CPUState, policy: str, *, pod_level: bool = False, rules: ReleaseRules = NEWEST.rules
) -> bytes:
    """The file as the kubelet writes it.

    Follows: v1.36, v1.37, cpumanager/state/state_checkpoint.go, storeState.

    >>> from nodewright.model.releases.v1_36 import RULES
    >>> cpu_state_file(CPUState(), "none", rules=RULES).decode()
    '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    """
    content = cpu_checkpoint_content(state, policy, pod_level=pod_level)
    return _written_format(rules, pod_level=pod_level).encoded(content)


def cpu_state_checksum_text(state: CPUState, policy: str, *, pod_level: bool = False) -> str:
    """The text that is hashed for the checksum of a file without `data`."""
    return (_V3 if pod_level else _V2).checksum_text(cpu_checkpoint_content(state, policy))


def read_cpu_state(content: bytes, options: CPUStateReadOptions) -> Verdict[CPUState]:
    """The state in the file, or why the kubelet does not start with it; the file is not changed.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, restoreState.
    Departs: of several faulty entries the first by name is reported; the kubelet reports any of them.
    Errors:  InputError for CPU numbers beyond 65535, which the kubelet would accept.
    """
    loaded = _loaded(content, options)
    if isinstance(loaded, Refused):
        return loaded
    value = loaded.value
    if value["PolicyName"] != options.policy:
        differs = StatePolicyDiffers(
            file=StateFile.CPU, path=options.path, configured=options.policy, written=value["PolicyName"]
        )
        return Refused((differs,))
    try:
        return Granted(_cpu_state(value, options))
    except _UnreadableCPUStateError as error:
        return Refused((error.reason,))


class _UnreadableCPUStateError(Exception):
    def __init__(self, reason: StateCPUsUnreadable) -> None:
        super().__init__(reason)
        self.reason = reason


def _cpu_state(value: dict[str, Any], options: CPUStateReadOptions) -> CPUState:
    pods = value.get("PodEntries") if options.pod_level else None

    def cpus(text: str, pod: str = "", container: str = "") -> CPUSet:
        try:
            return parsed_cpu_list(text)
        except CPUListError as error:
            reason = StateCPUsUnreadable(
                path=options.path,
                cpus=text,
                error=str(error),
                pod=pod,
                container=container,
                capitalizes_cpu=options.rules.state_files_with_data,
            )
            raise _UnreadableCPUStateError(reason) from None

    return CPUState(
        cpus(value["DefaultCPUSet"]),
        {
            pod: {name: cpus(text, pod, name) for name, text in sorted((containers or {}).items())}
            for pod, containers in sorted((value["Entries"] or {}).items())
        },
        {pod: _elements(entry) for pod, entry in sorted((pods or {}).items())},
    )


def _loaded(content: bytes, options: CPUStateReadOptions) -> Verdict[dict[str, Any]]:
    """The content in the newest format that the gate allows, migrated from older formats.

    Follows: v1.35, v1.36, cpumanager/state/state_checkpoint.go, restoreState, migrateV1CheckpointToV2Checkpoint,
        migrateV2CheckpointToV3Checkpoint; v1.37, loadAndMigrateCheckpointV4.
    """
    formats = _read_formats(options.rules, pod_level=options.pod_level)
    loaded = load_checkpoint(content, formats, StateFile.CPU, options.path)
    if isinstance(loaded, Refused):
        return loaded
    value, file_format, newest = loaded.value
    if file_format is _V1:
        entries: dict[str, dict[str, str]] = {}
        for container_id, cpus in sorted((value["Entries"] or {}).items()):
            name = options.container_names.get(container_id)
            if name is None:
                unknown = StateContainerUnknown(
                    path=options.path,
                    container_id=container_id,
                    by_old_kubelet=not options.rules.pod_entries_in_state_files,
                )
                return Refused((unknown,))
            entries.setdefault(name.pod, {})[name.container] = cpus
        value = {**value, "Entries": entries}
    if formats[0] is not _V3:
        return Granted(value)
    # Pod entries of the failed decoding in the newest format are kept.
    migrated = {name: value[name] for name in ("PolicyName", "DefaultCPUSet", "Entries") if value[name]}
    return Granted({**newest, **migrated})


def _read_formats(
    rules: ReleaseRules, *, pod_level: bool
) -> tuple[CheckpointFormat | DataCheckpointFormat, ...]:
    """The formats in the order in which the kubelet tries them."""
    if rules.state_files_with_data:
        return _V4, _V3, _V2
    if not rules.pod_entries_in_state_files:
        return _V1, _V2_NEWEST
    return (_V3, _V2, _V1) if pod_level else (_V2_UNGATED, _V1)


def _written_format(rules: ReleaseRules, *, pod_level: bool) -> CheckpointFormat | DataCheckpointFormat:
    if rules.state_files_with_data:
        return _V4
    return _V3 if pod_level else _V2


def cpu_checkpoint_content(state: CPUState, policy: str, *, pod_level: bool = True) -> dict[str, Any]:
    """The state as a Go struct, in the newest format; of the pod level only if it is kept."""
    return {
        "PolicyName": policy,
        "DefaultCPUSet": str(state.default),
        "Entries": {
            pod: {container: str(cpus) for container, cpus in containers.items()}
            for pod, containers in state.assignments.items()
        },
        "PodEntries": {pod: _pod_entry(cpus) for pod, cpus in state.pods.items() if pod_level},
    }


def parsed_cpu_list(text: str) -> CPUSet:
    """The CPU set that the kubelet parses from a text.

    Follows: k8s.io/utils v0.0, cpuset/cpuset.go, Parse.
    Errors:  CPUListError; InputError for numbers beyond 65535.

    >>> parsed_cpu_list("0-1,+3")
    CPUSet('0-1,3')
    >>> parsed_cpu_list("3-1")
    Traceback (most recent call last):
    ...
    nodewright.documents.profiles.state_files.cpu_manager_state.CPUListError: invalid range "3-1" (3 > 1)
    """
    mask = 0
    for part in text.split(",") if text else ():
        low_text, dash, high_text = part.partition("-")
        try:
            low = parse_int(low_text)
            high = parse_int(high_text) if dash else low
        except NumberError as error:
            raise CPUListError(str(error)) from None
        if low > high:
            raise CPUListError(f"invalid range {quoted(part)} ({low} > {high})")
        if high > LARGEST_ID:
            raise InputError([Fault(rule=f"CPU numbers must be at most {LARGEST_ID}", value=part)])
        mask |= ((1 << (high - low + 1)) - 1) << low
    return CPUSet(mask)


def _pod_entry(cpus: CPUSet) -> dict[str, Any]:
    return {"CPUSet": {"elems": {cpu: {} for cpu in cpus}}}


def _elements(entry: dict[str, Any]) -> CPUSet:
    return CPUSet.from_ids(entry["CPUSet"]["elems"] or ())


def _entry_from_json(json: dict[str, Any]) -> dict[str, Any]:
    return _pod_entry(parsed_cpu_list(json["CPUSet"]))


def _entry_to_json(entry: dict[str, Any]) -> dict[str, Any]:
    return {"CPUSet": str(_elements(entry))}


_SET = Struct(
    "cpuset.CPUSet", (Field("elems", "", MapOf("map[int]struct {}", INT, Struct("struct {}", ()))),)
)
_POD_ENTRY = Converted(
    Struct("state.PodEntry", (Field("CPUSet", "cpuSet", _SET),)),
    Struct("state.podEntryJSON", (Field("CPUSet", "cpuSet", STRING, omits_empty=True),)),
    _entry_from_json,
    _entry_to_json,
)
_STRING_MAP = MapOf("map[string]string", STRING, STRING)
_ENTRIES = Field(
    "Entries", "entries", MapOf("map[string]map[string]string", STRING, _STRING_MAP), omits_empty=True
)
_HEAD = (Field("PolicyName", "policyName", STRING), Field("DefaultCPUSet", "defaultCpuSet", STRING))
_POD_ENTRIES = Field(
    "PodEntries", "podEntries", MapOf("state.PodCPUAssignments", STRING, _POD_ENTRY), omits_empty=True
)
_NAME = "state.CPUManagerCheckpoint"
_V3 = CheckpointFormat(
    version=3,
    kind=Struct(_NAME, (*_HEAD, _ENTRIES, _POD_ENTRIES, CHECKSUM_FIELD)),
    checksum_type_name=_NAME,
    accepts_zero=False,
)
_V2 = CheckpointFormat(
    version=2, kind=Struct(f"{_NAME}V2", (*_HEAD, _ENTRIES, CHECKSUM_FIELD)), checksum_type_name=_NAME
)
_V2_UNGATED = replace(_V2, other_type_name=_V2.kind.name)
"""The same in kubelets of 1.36 without pod-level managers."""
_V2_NEWEST = CheckpointFormat(version=2, kind=Struct(_NAME, _V2.kind.fields), checksum_type_name=_NAME)
"""The same in kubelets for which it is the newest."""
_V4 = DataCheckpointFormat(
    version=4,
    name=_NAME,
    legacy=_V2,
    data=Struct(f"{_NAME}Data", (*_HEAD, _ENTRIES, _POD_ENTRIES)),
    manager="cpu manager",
)
_V1 = CheckpointFormat(
    version=1,
    kind=Struct(
        f"{_NAME}V1", (*_HEAD, Field("Entries", "entries", _STRING_MAP, omits_empty=True), CHECKSUM_FIELD)
    ),
    checksum_type_name=_NAME,
)
