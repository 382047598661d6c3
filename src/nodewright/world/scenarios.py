"""Scenario files, and the journals that runs leave: the same kind of document."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from nodewright.core.arrival import arrived, stored
from nodewright.core.validation import violations
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION, NodeProfile
from nodewright.model.release import RULED
from nodewright.model.scenario import BESIDE, KINDS, JournalHeader, Scenario, ScenarioEvent
from nodewright.model.state_reasons import StateFile
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, read_file
from nodewright.world.looks import look_faults
from nodewright.world.machine.check import contradictions
from nodewright.world.manifests import remark_text
from nodewright.world.places import Place
from nodewright.world.profile_faults import preference_faults, profile_faults
from nodewright.world.schema import faults_in
from nodewright.world.yaml import MAX_YAML_BYTES

KIND = "Scenario"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedScenario:
    """A scenario, and the parts of its document as they were written."""

    source: str
    scenario: Scenario
    node: dict[str, Any] | None
    """The document of `spec.node`."""
    events: tuple[dict[str, Any], ...]
    """The documents of `spec.events`, without what a journal says of their actions."""
    warnings: tuple[str, ...]
    """What the API server would have against pods, or do with them."""


def load_scenario(path: str, *, max_bytes: int = MAX_YAML_BYTES) -> LoadedScenario:
    """The scenario in the file, or on standard input (`-`).

    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with all faults of the file; also where it is the journal of another release.
    """
    return scenario_from(read_file(path), max_bytes=max_bytes)


def scenario_from(file: File, *, max_bytes: int = MAX_YAML_BYTES) -> LoadedScenario:
    """The scenario that the bytes describe; else as load_scenario."""
    documents = parse_documents(file.content, file.source, max_bytes=max_bytes)
    if len(documents) != 1:
        rule = f"one {KIND} is wanted, not {len(documents)} documents"
        raise InputError([Fault(rule=rule, source=file.source)])
    value = documents[0].value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"a document with apiVersion: {API_VERSION} and kind: {KIND} is wanted"
        raise InputError([Fault(rule=rule, source=file.source)])
    place = Place(file.source, file.content, document=documents[0].number, documents=1)
    faults = [*faults_in(value, KIND), *_kind_faults(value)]
    if faults:
        raise InputError(place.all_of(faults))
    scenario = decode(value, Scenario)
    _check_release(scenario.spec.journal, file.source)
    events = scenario.spec.events
    faults = place.all_of(
        [*_repeated(events), *_restart_faults(events), *look_faults(events), *_device_faults(events)]
    )
    if scenario.spec.node is not None:
        faults += replace(place, prefix="spec.node").all_of(profile_faults(scenario.spec.node))
    if faults:
        raise InputError(faults)
    spec = value["spec"]
    return LoadedScenario(
        source=file.source,
        scenario=_as_nodes_see(scenario),
        node=spec.get("node"),
        events=tuple(_without_actions(event) for event in spec["events"]),
        warnings=tuple(_warnings(scenario)),
    )


def _kind_faults(value: dict[str, Any]) -> Iterator[Fault]:
    """Events of no kind or of several, and a node that is none; where fields are at fault, nothing is said."""
    spec = value.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    node = spec.get("node")
    if isinstance(node, dict):
        for field, wanted in (("apiVersion", API_VERSION), ("kind", "NodeProfile")):
            if node.get(field) not in (None, wanted):
                yield Fault(path=f"spec.node.{field}", value=node.get(field), rule=f"must be {wanted}")
    events = spec.get("events")
    known = tuple(KINDS.values())
    for index, event in enumerate(events if isinstance(events, list) else ()):
        if not isinstance(event, dict):
            continue
        kinds = [kind for kind in known if event.get(kind) is not None]
        if len(kinds) > 1:
            yield Fault(path=f"spec.events[{index}]", rule=f"is one thing, not {' and '.join(kinds)}")
        elif not kinds and all(name in (*known, *BESIDE) or value is None for name, value in event.items()):
            yield Fault(path=f"spec.events[{index}]", rule=f"one of {', '.join(known)} is wanted")


def _check_release(journal: JournalHeader | None, source: str) -> None:
    """Refuse what another release has decided: it may have had other rules.

    Errors: InputError.
    """
    ours = this_release()
    if journal in (None, ours):
        return
    assert journal is not None
    rule = (
        f"the journal of another release: nodewright {journal.nodewright} with the rules of Kubernetes "
        f"{journal.rules_of}, and this is nodewright {ours.nodewright} with those of {ours.rules_of}; "
        "without spec.journal its events are replayed under today's rules"
    )
    raise InputError([Fault(rule=rule, path="spec.journal", source=source)])


def this_release() -> JournalHeader:
    """What stands in journals that are written now."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to load, and few journals are written

    return JournalHeader(nodewright=version("nodewright"), rules_of=RULED[-1])


def _repeated(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Uids that two pods have, while the first has not been removed: the API server gives none twice.

    A pod without a uid may come again after it was refused: whether it was there still, the run will tell.
    """
    there: dict[str, tuple[int, str]] = {}
    for index, event in enumerate(events):
        pod = event.add or event.found
        if event.remove is not None:
            there = {uid: (at, name) for uid, (at, name) in there.items() if event.remove not in (uid, name)}
        if pod is None or not pod.uid:
            continue
        if pod.uid in there:
            path = f"spec.events[{index}].{'add' if event.add else 'found'}.metadata.uid"
            rule = f"the pod of spec.events[{there[pod.uid][0]}] has it; remove that one first"
            yield Fault(path=path, error="Duplicate value", value=pod.uid, rule=rule)
        there[pod.uid] = index, pod.full_name


def _restart_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Restarts on machines that contradict themselves, and deleted files that no kubelet has."""
    for index, event in enumerate(events):
        if event.restart is None:
            continue
        path = f"spec.events[{index}].restart"
        if event.restart.machine_info is not None:
            yield from contradictions(event.restart.machine_info, field=f"{path}.machineInfo")
        for at, name in enumerate(event.restart.deleted_files):
            if name not in _MANAGERS_FILES:
                rule = f"must be one of {', '.join(_MANAGERS_FILES)}"
                yield Fault(
                    path=f"{path}.deletedFiles[{at}]", error="Unsupported value", value=name, rule=rule
                )


def _device_faults(events: tuple[ScenarioEvent, ...]) -> Iterator[Fault]:
    """Preferences that no plugin has, and answers to what nobody asked."""
    for index, event in enumerate(events):
        path = f"spec.events[{index}]"
        if event.devices is not None:
            preference = event.devices.preferred_allocation
            yield from preference_faults(f"{path}.devices.preferredAllocation", preference)
        if event.preferred is not None and event.add is None:
            yield Fault(path=f"{path}.preferred", rule="plugins are asked about pods that are added")


_MANAGERS_FILES = (StateFile.CPU, StateFile.MEMORY, StateFile.DEVICES)


def _as_nodes_see(scenario: Scenario) -> Scenario:
    """The scenario with its pods as they are written, but for what only the API server can know or change."""
    if scenario.spec.live:
        return scenario
    events = tuple(map(_event_as_nodes_see, scenario.spec.events))
    return msgspec.structs.replace(scenario, spec=msgspec.structs.replace(scenario.spec, events=events))


def _event_as_nodes_see(event: ScenarioEvent) -> ScenarioEvent:
    if event.add is not None:
        return msgspec.structs.replace(event, add=_as_nodes_see_it(event.add))
    if event.resize is not None:
        return msgspec.structs.replace(event, resize=stored(event.resize))
    return event


def _as_nodes_see_it(pod: Pod) -> Pod:
    """The pod with its amounts as they are kept, and with the priority that its class has."""
    return arrived(pod).pod if _lacks_priority(pod) else stored(pod)


def _lacks_priority(pod: Pod) -> bool:
    return bool(pod.spec.priority_class_name) and pod.spec.priority is None


def _warnings(scenario: Scenario) -> Iterator[str]:
    for index, event in enumerate(scenario.spec.events):
        if event.add is not None and scenario.spec.journal is None:
            yield from _pod_warnings(event.add, f"spec.events[{index}].add")


def _pod_warnings(pod: Pod, path: str) -> Iterator[str]:
    for one in violations(pod, is_template=True):
        fault = Fault(path=f"{path}.{one.path}", error=str(one.type), value=one.value, rule=one.rule)
        yield f"{fault} (the API server would not take the pod)"
    for remark in arrived(pod).remarks if _lacks_priority(pod) else ():
        yield remark_text(pod, remark)


def _without_actions(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "actions"}


def node_of(loaded: LoadedScenario) -> NodeProfile:
    """The scenario's own node.

    Errors: InputError where it has none.
    """
    node = loaded.scenario.spec.node
    if node is None:
        rule = "the scenario names no node: --node does"
        raise InputError([Fault(path="spec.node", error="Required value", rule=rule, source=loaded.source)])
    return node
