"""Loads and validates Scenario files, and the journals of runs, which are the same kind of document."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode
from nodewright.documents.formats.documents import InputFile, parse_documents, read_file
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.workloads import defaulting_warning_text
from nodewright.documents.profiles.node_profiles import (
    amount_faults,
    preferred_allocation_faults,
    profile_faults,
)
from nodewright.documents.profiles.usage_files import node_usage_faults
from nodewright.engine.admission.admission_plugins import defaulted_pod, with_canonical_quantities
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import contradictions
from nodewright.model.kubernetes.node_profile import API_VERSION, NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import (
    EVENT_DETAIL_FIELDS,
    EVENT_KINDS,
    JournalHeader,
    Scenario,
    ScenarioEvent,
    ScenarioObservation,
)
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.model.releases.release_table import RELEASES_WITH_RULES
from nodewright.model.values.duration import Duration, DurationError
from nodewright.version import __version__

_OBSERVATION_KINDS = ("summary", "usage", "failed", "conditions")


def observation_faults(events: Sequence[ScenarioEvent]) -> Iterator[Fault]:
    """Faults of observations: none or several kinds in one event, times that go backwards."""
    last_at, last_path = Duration(), ""
    for index, event in enumerate(events):
        if event.observe is None:
            continue
        path = f"spec.events[{index}].observe"
        yield from _observation_kind_faults(event.observe, path)
        if event.observe.at is None:
            last_at = Duration(last_at.nanoseconds + 10 * 10**9) if last_path else last_at
        else:
            try:
                at = Duration.parse(event.observe.at)
            except DurationError as error:
                yield Fault(path=f"{path}.at", value=event.observe.at, rule=str(error))
                continue
            if at < last_at:
                rule = f"time must not go backwards: {last_path or 'the start'} was at {last_at}"
                yield Fault(path=f"{path}.at", value=event.observe.at, rule=rule)
            last_at = max(at, last_at)
        last_path = f"spec.events[{index}]"


def _observation_kind_faults(observation: ScenarioObservation, path: str) -> Iterator[Fault]:
    kinds = [name for name in _OBSERVATION_KINDS if getattr(observation, name) not in (None, False)]
    if not kinds:
        yield Fault(path=path, rule=f"must have one of {', '.join(_OBSERVATION_KINDS)}")
    elif len(kinds) > 1:
        yield Fault(path=path, rule=f"must have only one of {' and '.join(kinds)}")
    if observation.usage is not None:
        yield from node_usage_faults(observation.usage, f"{path}.usage")


KIND = "Scenario"


class LoadedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, and the parts of its document as written."""

    source: str
    scenario: Scenario
    node: dict[str, Any] | None
    """The document of `spec.node`."""
    events: tuple[dict[str, Any], ...]
    """The documents of `spec.events`, without the actions that a journal records."""
    warnings: tuple[str, ...]
    """The API server's validation errors and defaulting warnings of the pods."""


def load_scenario(path: str, *, max_bytes: int = MAX_YAML_BYTES) -> LoadedScenario:
    """The scenario in the file, or on standard input (`-`).

    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with all faults of the file, or if it is the journal of another release.
    """
    return scenario_from_file(read_file(path), max_bytes=max_bytes)


def scenario_from_file(file: InputFile, *, max_bytes: int = MAX_YAML_BYTES) -> LoadedScenario:
    """The scenario that the bytes describe; otherwise like `load_scenario`."""
    documents = parse_documents(file.content, file.source, max_bytes=max_bytes)
    if len(documents) != 1:
        rule = f"expected one {KIND}, not {len(documents)} documents"
        raise InputError([Fault(rule=rule, source=file.source)])
    value = documents[0].value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"expected a document with apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=file.source)])
    location = ObjectLocation(file.source, file.content, document=documents[0].number, documents=1)
    check = checked(value, KIND)
    faults = [*check.faults, *_kind_faults(value)]
    if faults:
        raise InputError(location.locate_all(faults))
    value = check.valid_part()
    scenario = decode(value, Scenario)
    _check_release(scenario.spec.journal, file.source)
    events = scenario.spec.events
    faults = location.locate_all(_event_faults(events))
    if scenario.spec.node is not None:
        faults += replace(location, prefix="spec.node").locate_all(profile_faults(scenario.spec.node))
    if faults:
        raise InputError(faults)
    spec = value["spec"]
    return LoadedScenario(
        source=file.source,
        scenario=_with_node_pods(scenario),
        node=spec.get("node"),
        events=tuple(
            {name: value for name, value in event.items() if name != "actions"} for event in spec["events"]
        ),
        warnings=tuple(_warnings(scenario)),
    )


def _event_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Faults of events beyond the schema."""
    yield from _duplicate_uid_faults(events)
    yield from _restart_faults(events)
    yield from observation_faults(events)
    yield from _device_faults(events)
    for index, event in enumerate(events):
        if event.lend is not None:
            yield from amount_faults(f"spec.events[{index}].lend", event.lend)


def _kind_faults(value: dict[str, Any]) -> Iterator[Fault]:
    """Faults of events with no kind or several, and of a wrong node kind; fields with schema faults are skipped."""
    spec = value.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    node = spec.get("node")
    if isinstance(node, dict):
        for field, expected in (("apiVersion", API_VERSION), ("kind", "NodeProfile")):
            if node.get(field) not in (None, expected):
                yield Fault(path=f"spec.node.{field}", value=node.get(field), rule=f"must be {expected}")
    events = spec.get("events")
    known = tuple(EVENT_KINDS.values())
    for index, event in enumerate(events if isinstance(events, list) else ()):
        if not isinstance(event, dict):
            continue
        kinds = [kind for kind in known if event.get(kind) is not None]
        if len(kinds) > 1:
            yield Fault(path=f"spec.events[{index}]", rule=f"must have only one of {' and '.join(kinds)}")
        elif not kinds and all(
            name in (*known, *EVENT_DETAIL_FIELDS) or value is None for name, value in event.items()
        ):
            yield Fault(path=f"spec.events[{index}]", rule=f"must have one of {', '.join(known)}")


def _check_release(journal: JournalHeader | None, source: str) -> None:
    """Rejects the journal of another release, whose rules may differ.

    Errors: InputError.
    """
    current = journal_header()
    if journal in (None, current):
        return
    assert journal is not None
    rule = (
        f"the journal was written by nodewright {journal.nodewright} with the rules of Kubernetes "
        f"{journal.rules_of}, and this is nodewright {current.nodewright} with those of {current.rules_of}; "
        "remove spec.journal to replay its events under the current rules"
    )
    raise InputError([Fault(rule=rule, path="spec.journal", source=source)])


def journal_header() -> JournalHeader:
    """The header of new journals."""
    return JournalHeader(nodewright=__version__, rules_of=RELEASES_WITH_RULES[-1])


def _duplicate_uid_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Faults of uids that two pods have at the same time, which the API server never assigns.

    A pod without a uid may be added again after it was rejected; only the run knows whether it is still on the node.
    """
    pod_of_uid: dict[str, tuple[int, str]] = {}
    for index, event in enumerate(events):
        pod = event.add or event.found
        if event.remove is not None:
            pod_of_uid = {
                uid: (at, name) for uid, (at, name) in pod_of_uid.items() if event.remove not in (uid, name)
            }
        if pod is None or not pod.uid:
            continue
        if pod.uid in pod_of_uid:
            path = f"spec.events[{index}].{'add' if event.add else 'found'}.metadata.uid"
            rule = f"the pod of spec.events[{pod_of_uid[pod.uid][0]}] has the same uid; remove that pod first"
            yield Fault(path=path, error="Duplicate value", value=pod.uid, rule=rule)
        pod_of_uid[pod.uid] = index, pod.full_name


def _restart_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Faults of restarts: contradictory machines, and deleted files that a kubelet does not have."""
    for index, event in enumerate(events):
        if event.restart is None:
            continue
        path = f"spec.events[{index}].restart"
        if event.restart.machine_info is not None:
            yield from contradictions(event.restart.machine_info, field=f"{path}.machineInfo")
        for at, name in enumerate(event.restart.deleted_files):
            if name not in _MANAGER_STATE_FILES:
                rule = f"must be one of {', '.join(_MANAGER_STATE_FILES)}"
                yield Fault(
                    path=f"{path}.deletedFiles[{at}]", error="Unsupported value", value=name, rule=rule
                )


def _device_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Faults of devices: unknown allocation preferences, and `preferred` in events that add no pod."""
    for index, event in enumerate(events):
        path = f"spec.events[{index}]"
        if event.devices is not None:
            preference = event.devices.preferred_allocation
            yield from preferred_allocation_faults(f"{path}.devices.preferredAllocation", preference)
        if event.preferred is not None and event.add is None:
            yield Fault(
                path=f"{path}.preferred", rule="only an event that adds a pod can have preferred devices"
            )


_MANAGER_STATE_FILES = (StateFile.CPU, StateFile.MEMORY, StateFile.DEVICES)


def _with_node_pods(scenario: Scenario) -> Scenario:
    """The scenario with pods as a node receives them, after the API server's conversions."""
    if scenario.spec.live:
        return scenario
    events = tuple(map(_event_with_node_pod, scenario.spec.events))
    return msgspec.structs.replace(scenario, spec=msgspec.structs.replace(scenario.spec, events=events))


def _event_with_node_pod(event: ScenarioEvent) -> ScenarioEvent:
    if event.add is not None:
        return msgspec.structs.replace(event, add=_node_pod(event.add))
    if event.resize is not None:
        return msgspec.structs.replace(event, resize=with_canonical_quantities(event.resize))
    return event


def _node_pod(pod: Pod) -> Pod:
    """The pod with canonical quantities, and with the priority of its class."""
    return defaulted_pod(pod).pod if _needs_priority(pod) else with_canonical_quantities(pod)


def _needs_priority(pod: Pod) -> bool:
    return bool(pod.spec.priority_class_name) and pod.spec.priority is None


def _warnings(scenario: Scenario) -> Iterator[str]:
    for index, event in enumerate(scenario.spec.events):
        if event.add is not None and scenario.spec.journal is None:
            yield from _pod_warnings(event.add, f"spec.events[{index}].add")


def _pod_warnings(pod: Pod, path: str) -> Iterator[str]:
    for violation in pod_violations(with_defaults(pod), is_template=True):
        fault = Fault(
            path=f"{path}.{violation.path}",
            error=str(violation.type),
            value=violation.value,
            rule=violation.rule,
        )
        yield f"{fault} (the API server would reject the pod)"
    for warning in defaulted_pod(pod).warnings if _needs_priority(pod) else ():
        yield defaulting_warning_text(pod, warning)


def scenario_node(loaded: LoadedScenario) -> NodeProfile:
    """The scenario's own node.

    Errors: InputError if it has none.
    """
    node = loaded.scenario.spec.node
    if node is None:
        rule = "the scenario has no node; name one with --node"
        raise InputError([Fault(path="spec.node", error="Required value", rule=rule, source=loaded.source)])
    return node
