"""Scenario files: valid ones, and the faults of invalid ones."""

import json
from typing import Any

import pytest
import yaml

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.scenario_files import (
    LoadedScenario,
    journal_header,
    scenario_from_file,
    scenario_node,
)
from nodewright.model.errors import InputError

HEAD = {"apiVersion": "nodewright.dev/v1alpha1", "kind": "Scenario"}
SPEC = {"containers": [{"name": "c", "resources": {"requests": {"memory": "1.5Gi"}}}]}


def a_pod(name: str = "web", uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid} if uid else {"name": name}
    return {"metadata": metadata, "spec": {**SPEC, **spec}}


def load(*events: Any, **spec: Any) -> LoadedScenario:
    document = {**HEAD, "spec": {"events": list(events), **spec}}
    return scenario_from_file(InputFile("s.json", json.dumps(document).encode()))


def refusal(content: bytes) -> list[str]:
    with pytest.raises(InputError) as refused:
        scenario_from_file(InputFile("s.yaml", content))
    return [str(fault) for fault in refused.value.faults]


def refusal_of(*events: Any, **spec: Any) -> list[str]:
    document = {**HEAD, "spec": {"events": list(events), **spec}}
    return refusal(yaml.safe_dump(document, default_flow_style=True, width=10**6).encode())


def test_events_are_read_in_order() -> None:
    loaded = load({"add": a_pod()}, {"remove": "default/web"}, {"found": a_pod("db")}, {"killFailed": "web"})
    assert [event.kind for event in loaded.scenario.spec.events] == ["add", "remove", "found", "killFailed"]
    assert loaded.events[1] == {"remove": "default/web"}
    assert loaded.warnings == ()


def test_pods_have_the_quantities_and_priorities_that_the_api_server_sets() -> None:
    loaded = load({"add": a_pod(priorityClassName="system-node-critical")}, {"add": a_pod("db")})
    critical, plain = (event.add for event in loaded.scenario.spec.events)
    assert critical is not None
    assert plain is not None
    assert critical.spec.priority == 2_000_001_000
    assert critical.spec.containers[0].resources.requests["memory"].as_int64() == 1536 * 2**20
    assert plain.spec.priority is None
    assert plain.spec.containers[0].resources.requests["memory"].as_int64() == 1536 * 2**20


def test_what_the_api_server_would_reject_is_a_warning() -> None:
    (unknown,) = load({"add": a_pod(priorityClassName="gold")}).warnings
    assert unknown == 'default/web: no PriorityClass with name "gold" is known; priority 0 is assumed'
    (negative,) = load({"add": a_pod(overhead={"cpu": "-1"})}).warnings
    assert negative.startswith("spec.events[0].add.spec.overhead.limits[cpu]: Invalid value")
    assert negative.endswith("(the API server would reject the pod)")
    journal = {"nodewright": journal_header().nodewright, "rulesOf": journal_header().rules_of}
    assert load({"add": a_pod(priorityClassName="gold")}, journal=journal).warnings == ()


WRONG = {
    '{"ad": {}}': ['s.yaml:1:72: spec.events[0].ad: unknown field; did you mean "add"?'],
    '{"restart": true}': ["s.yaml:1:72: spec.events[0].restart: Invalid value: true: must be a mapping, not true or false"],
    "{}": ["s.yaml:1:71: spec.events[0]: must have one of add, remove, found, killFailed, restart, observe, lend, started, resize, devices, served"],
    '{"add": null}': ["s.yaml:1:71: spec.events[0]: must have one of add, remove, found, killFailed, restart, observe, lend, started, resize, devices, served"],
    '{"add": {}, "remove": "x"}': ["s.yaml:1:71: spec.events[0]: must have only one of add and remove"],
    '{"remove": 1}': ["s.yaml:1:72: spec.events[0].remove: Invalid value: 1: must be a string, not a number: put it in quotes"],
    '{"add": {"spec": {"container": []}}}': ['s.yaml:1:85: spec.events[0].add.spec.container: unknown field; did you mean "containers"?'],
    '{"remove": "x", "actions": [5]}': ["s.yaml:1:82: spec.events[0].actions[0]: Invalid value: 5: must be a mapping, not a number"],
    "5": ["s.yaml:1:71: spec.events[0]: Invalid value: 5: must be a mapping, not a number"],
}  # fmt: skip


@pytest.mark.parametrize(("event", "faults"), WRONG.items())
def test_an_invalid_event_is_reported_with_its_position(event: str, faults: list[str]) -> None:
    assert refusal_of(json.loads(event)) == faults


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "s.yaml: expected one Scenario, not 0 documents"),
        (b"a: 1\n---\nb: 2", "s.yaml: expected one Scenario, not 2 documents"),
        (
            b"kind: NodeProfile",
            "s.yaml: expected a document with apiVersion: nodewright.dev/v1alpha1 and kind: Scenario",
        ),
        (json.dumps(HEAD).encode(), "s.yaml:1:1: spec: Required value"),
        (json.dumps({**HEAD, "spec": {}}).encode(), "s.yaml:1:63: spec.events: Required value"),
    ],
)
def test_other_documents_than_a_scenario_are_rejected(content: bytes, fault: str) -> None:
    assert refusal(content) == [fault]


def test_a_journal_of_another_release_is_rejected() -> None:
    (fault,) = refusal_of(journal={"nodewright": "0.0.1", "rulesOf": "1.35"})
    assert fault == (
        "s.yaml: spec.journal: the journal was written by nodewright 0.0.1 with the rules of Kubernetes 1.35, "
        f"and this is nodewright {journal_header().nodewright} with those of 1.37; "
        "remove spec.journal to replay its events under the current rules"
    )


def test_two_pods_have_the_same_uid_only_one_after_the_other() -> None:
    twice = [{"add": a_pod("a", "1")}, {"remove": "default/a"}, {"add": a_pod("b", "1")}, {"remove": "1"}]
    load(*twice, {"found": a_pod("c", "1")})
    (fault,) = refusal_of(*twice[:3], {"remove": "other"}, {"found": a_pod("c", "1")})
    place, _, rest = fault.partition(": ")
    assert place.startswith("s.yaml:1:")
    assert rest == (
        'spec.events[4].found.metadata.uid: Duplicate value: "1": '
        "the pod of spec.events[2] has the same uid; remove that pod first"
    )
    # One that was refused may come again; without a uid it is a pod of its own.
    load({"add": a_pod("a")}, {"add": a_pod("a")})


def test_the_node_is_read_as_profiles_are() -> None:
    assert scenario_node(load(node={"metadata": {"name": "n"}, "spec": {}})).metadata.name == "n"
    (fault,) = refusal_of(node={"spec": {"cgroupVersion": 3}})
    assert fault.endswith("spec.cgroupVersion: Invalid value: 3: must be 1 or 2")
    (fault,) = refusal_of(node={"kind": "Node", "spec": {}})
    assert fault.endswith('spec.node.kind: Invalid value: "Node": must be NodeProfile')
    with pytest.raises(
        InputError, match=r"spec\.node: Required value: the scenario has no node; name one with --node"
    ):
        scenario_node(load())


NO_USAGE: dict[str, Any] = {"usage": {}}


def faults(*looks: dict[str, Any]) -> list[str]:
    spec = {"events": [{"observe": look} for look in looks]}
    text = yaml.safe_dump({"apiVersion": "nodewright.dev/v1alpha1", "kind": "Scenario", "spec": spec})
    try:
        scenario_from_file(InputFile("s.yaml", text.encode()))
    except InputError as error:
        return [str(fault).partition(": ")[2] for fault in error.faults]
    return []


def test_an_observation_is_a_summary_a_table_a_failure_or_conditions() -> None:
    assert faults(NO_USAGE, {"failed": True}, {"conditions": []}, {"summary": {"pods": []}}) == []
    assert faults({}) == ["spec.events[0].observe: must have one of summary, usage, failed, conditions"]
    assert faults({"usage": {}, "failed": True}) == [
        "spec.events[0].observe: must have only one of usage and failed"
    ]


def test_times_must_not_go_backwards() -> None:
    assert faults(NO_USAGE, {**NO_USAGE, "at": "10s"}, {**NO_USAGE, "at": "10s"}) == []
    assert faults({**NO_USAGE, "at": "5s"}, NO_USAGE, {**NO_USAGE, "at": "14s"}) == [
        'spec.events[2].observe.at: Invalid value: "14s": time must not go backwards: spec.events[1] was at 15s'
    ]
    assert faults({**NO_USAGE, "at": "-1s"}) == [
        'spec.events[0].observe.at: Invalid value: "-1s": time must not go backwards: the start was at 0s'
    ]


@pytest.mark.parametrize(
    ("look", "rule"),
    [
        ({"usage": {}, "at": "soon"}, 'observe.at: Invalid value: "soon": time: invalid duration'),
        ({"conditions": ["Tired"]}, "must be one of DiskPressure, MemoryPressure, PIDPressure"),
        ({"conditions": [1]}, "must be one of DiskPressure, MemoryPressure, PIDPressure, not a number"),
        ({"usage": {"available": {"memory": "1"}}}, "observe.usage.available[memory]: Unsupported value"),
    ],
)
def test_what_is_wrong_is_named(look: dict[str, Any], rule: str) -> None:
    (fault,) = faults(look)
    assert rule in fault
