"""`cpu_manager_state`: which CPUs are shared, and which pods and containers have CPUs of their own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nodewright.core.cpu.state import CPUState
from nodewright.model.state_reasons import (
    FormatTried,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.golang import NumberError, parse_int, quoted
from nodewright.values.idset import LARGEST_ID, CPUSet
from nodewright.world.errors import Fault, InputError
from nodewright.world.state.formats import CHECKSUM_FIELD, Format
from nodewright.world.state.gotypes import INT, TEXT, Converted, Field, MapOf, Struct, zero


class ContainerName(NamedTuple):
    """A container by its pod's uid and its name."""

    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUStateReading:
    """How a kubelet reads the file."""

    path: str
    policy: str
    pod_level: bool = False
    """Whether the gate PodLevelResourceManagers is on."""
    running: Mapping[str, ContainerName] = field(default_factory=dict)
    """The containers that the runtime has, by id: files of the oldest format name no others."""


class CPUListError(ValueError):
    """A text that the kubelet does not take for a set of CPUs; the message is its own."""


def cpu_state_file(state: CPUState, policy: str, *, pod_level: bool = False) -> bytes:
    """The file as the kubelet writes it.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, storeState.

    >>> cpu_state_file(CPUState(), "none").decode()
    '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    """
    return (_V3 if pod_level else _V2).written(content_of(state, policy))


def cpu_state_hashed(state: CPUState, policy: str, *, pod_level: bool = False) -> str:
    """The text that the file's checksum is taken of."""
    return (_V3 if pod_level else _V2).hashed_text(content_of(state, policy))


def read_cpu_state(content: bytes, reading: CPUStateReading) -> Verdict[CPUState]:
    """What the file says, or why the kubelet does not start with it. It is left as it is.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, restoreState.
    Departs: of several entries at fault the first by name is told; the kubelet tells any of them.
    Errors:  InputError for CPU numbers beyond 65535, which the kubelet would take.
    """
    found = _loaded(content, reading)
    if isinstance(found, Refused):
        return found
    value = found.value
    if value["PolicyName"] != reading.policy:
        differs = StatePolicyDiffers(
            file=StateFile.CPU, path=reading.path, configured=reading.policy, written=value["PolicyName"]
        )
        return Refused((differs,))
    try:
        return Granted(_restored(value, reading.path))
    except _UnreadableError as error:
        return Refused((error.reason,))


class _UnreadableError(Exception):
    def __init__(self, reason: StateCPUsUnreadable) -> None:
        super().__init__(reason)
        self.reason = reason


def _restored(value: dict[str, Any], path: str) -> CPUState:
    def cpus(text: str, pod: str = "", container: str = "") -> CPUSet:
        try:
            return cpus_of(text)
        except CPUListError as error:
            reason = StateCPUsUnreadable(path=path, cpus=text, error=str(error), pod=pod, container=container)
            raise _UnreadableError(reason) from None

    return CPUState(
        cpus(value["DefaultCPUSet"]),
        {
            pod: {name: cpus(text, pod, name) for name, text in sorted((containers or {}).items())}
            for pod, containers in sorted((value["Entries"] or {}).items())
        },
        {pod: _elements(entry) for pod, entry in sorted((value.get("PodEntries") or {}).items())},
    )


def _loaded(content: bytes, reading: CPUStateReading) -> Verdict[dict[str, Any]]:
    """The file's content in the newest format that the gate allows, whatever format it has."""
    formats = (_V3, _V2, _V1) if reading.pod_level else (_V2, _V1)
    tried: list[FormatTried] = []
    newest = _empty(formats[0])
    for each in formats:
        value = newest if each is formats[0] else _empty(each)
        # A kubelet without pod-level managers takes the checksum under the older name, too.
        names = (each.kind.name,) if each is _V2 and not reading.pod_level else ()
        failed = each.load(content, value, names)
        if failed is None:
            return _migrated(value, each, newest, reading)
        tried.append(failed)
    return Refused((StateFileDamaged(file=StateFile.CPU, path=reading.path, tried=tuple(tried)),))


def _migrated(
    value: dict[str, Any], of: Format, newest: dict[str, Any], reading: CPUStateReading
) -> Verdict[dict[str, Any]]:
    """The content in the newest format; what that one's failed reading has left of pods stays.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, migrateV1CheckpointToV2Checkpoint,
        migrateV2CheckpointToV3Checkpoint.
    """
    if of is _V1:
        entries: dict[str, dict[str, str]] = {}
        for container_id, cpus in sorted((value["Entries"] or {}).items()):
            name = reading.running.get(container_id)
            if name is None:
                return Refused((StateContainerUnknown(path=reading.path, container_id=container_id),))
            entries.setdefault(name.pod, {})[name.container] = cpus
        value = {**value, "Entries": entries}
    if not reading.pod_level or of is _V3:
        return Granted(value)
    found = {name: value[name] for name in ("PolicyName", "DefaultCPUSet", "Entries") if value[name]}
    return Granted({**newest, **found})


def _empty(of: Format) -> dict[str, Any]:
    """What the kubelet reads into."""
    return {**zero(of.kind), **({"PodEntries": {}} if of is _V3 else {}), "Entries": {}}


def content_of(state: CPUState, policy: str) -> dict[str, Any]:
    """The state as Go's structure, in the newest format."""
    return {
        "PolicyName": policy,
        "DefaultCPUSet": str(state.default),
        "Entries": {
            pod: {container: str(cpus) for container, cpus in containers.items()}
            for pod, containers in state.assignments.items()
        },
        "PodEntries": {pod: _pod_entry(cpus) for pod, cpus in state.pods.items()},
    }


def cpus_of(text: str) -> CPUSet:
    """The set that the kubelet takes a text for.

    Follows: k8s.io/utils v0.0, cpuset/cpuset.go, Parse.
    Errors:  CPUListError; InputError for numbers beyond 65535.

    >>> cpus_of("0-1,+3")
    CPUSet('0-1,3')
    >>> cpus_of("3-1")
    Traceback (most recent call last):
    ...
    nodewright.world.state.cpu.CPUListError: invalid range "3-1" (3 > 1)
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
            raise InputError([Fault(rule=f"CPU numbers are read up to {LARGEST_ID}", value=part)])
        mask |= ((1 << (high - low + 1)) - 1) << low
    return CPUSet(mask)


def _pod_entry(cpus: CPUSet) -> dict[str, Any]:
    return {"CPUSet": {"elems": {cpu: {} for cpu in cpus}}}


def _elements(entry: dict[str, Any]) -> CPUSet:
    return CPUSet.from_ids(entry["CPUSet"]["elems"] or ())


def _entry_from_json(json: dict[str, Any]) -> dict[str, Any]:
    return _pod_entry(cpus_of(json["CPUSet"]))


def _entry_to_json(entry: dict[str, Any]) -> dict[str, Any]:
    return {"CPUSet": str(_elements(entry))}


_SET = Struct(
    "cpuset.CPUSet", (Field("elems", "", MapOf("map[int]struct {}", INT, Struct("struct {}", ()))),)
)
_POD_ENTRY = Converted(
    Struct("state.PodEntry", (Field("CPUSet", "cpuSet", _SET),)),
    Struct("state.podEntryJSON", (Field("CPUSet", "cpuSet", TEXT, omits_empty=True),)),
    _entry_from_json,
    _entry_to_json,
)
_TEXTS = MapOf("map[string]string", TEXT, TEXT)
_BY_POD = Field("Entries", "entries", MapOf("map[string]map[string]string", TEXT, _TEXTS), omits_empty=True)
_HEAD = (Field("PolicyName", "policyName", TEXT), Field("DefaultCPUSet", "defaultCpuSet", TEXT))
_POD_ENTRIES = Field(
    "PodEntries", "podEntries", MapOf("state.PodCPUAssignments", TEXT, _POD_ENTRY), omits_empty=True
)
_NAME = "state.CPUManagerCheckpoint"
_V3 = Format(
    version=3,
    kind=Struct(_NAME, (*_HEAD, _BY_POD, _POD_ENTRIES, CHECKSUM_FIELD)),
    hashed_as=_NAME,
    accepts_zero=False,
)
_V2 = Format(version=2, kind=Struct(f"{_NAME}V2", (*_HEAD, _BY_POD, CHECKSUM_FIELD)), hashed_as=_NAME)
_V1 = Format(
    version=1,
    kind=Struct(
        f"{_NAME}V1", (*_HEAD, Field("Entries", "entries", _TEXTS, omits_empty=True), CHECKSUM_FIELD)
    ),
    hashed_as=_NAME,
)
