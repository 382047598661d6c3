"""Scenario files: what is taken, and what is wrong with those that are not."""

import json
from typing import Any

import pytest
import yaml

from nodewright.world.errors import InputError
from nodewright.world.files import File
from nodewright.world.scenarios import LoadedScenario, node_of, scenario_from, this_release

HEAD = {"apiVersion": "nodewright.dev/v1alpha1", "kind": "Scenario"}
SPEC = {"containers": [{"name": "c", "resources": {"requests": {"memory": "1.5Gi"}}}]}


def a_pod(name: str = "web", uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid} if uid else {"name": name}
    return {"metadata": metadata, "spec": {**SPEC, **spec}}


def load(*events: Any, **spec: Any) -> LoadedScenario:
    document = {**HEAD, "spec": {"events": list(events), **spec}}
    return scenario_from(File("s.json", json.dumps(document).encode()))


def refusal(content: bytes) -> list[str]:
    with pytest.raises(InputError) as refused:
        scenario_from(File("s.yaml", content))
    return [str(fault) for fault in refused.value.faults]


def refusal_of(*events: Any, **spec: Any) -> list[str]:
    document = {**HEAD, "spec": {"events": list(events), **spec}}
    return refusal(yaml.safe_dump(document, default_flow_style=True, width=10**6).encode())


def test_events_are_read_in_order() -> None:
    loaded = load({"add": a_pod()}, {"remove": "default/web"}, {"found": a_pod("db")}, {"killFailed": "web"})
    assert [event.kind for event in loaded.scenario.spec.events] == ["add", "remove", "found", "killFailed"]
    assert loaded.events[1] == {"remove": "default/web"}
    assert loaded.warnings == ()


def test_pods_have_the_amounts_and_priorities_that_the_api_server_gives_out() -> None:
    loaded = load({"add": a_pod(priorityClassName="system-node-critical")}, {"add": a_pod("db")})
    critical, plain = (event.add for event in loaded.scenario.spec.events)
    assert critical is not None
    assert plain is not None
    assert critical.spec.priority == 2_000_001_000
    assert critical.spec.containers[0].resources.requests["memory"].as_int64() == 1536 * 2**20
    assert plain.spec.priority is None
    assert plain.spec.containers[0].resources.requests["memory"].as_int64() == 1536 * 2**20


def test_what_the_api_server_would_refuse_is_a_warning() -> None:
    (unknown,) = load({"add": a_pod(priorityClassName="gold")}).warnings
    assert unknown == 'default/web: no PriorityClass with name "gold" is known; priority 0 is assumed'
    (negative,) = load({"add": a_pod(overhead={"cpu": "-1"})}).warnings
    assert negative.startswith("spec.events[0].add.spec.overhead.limits[cpu]: Invalid value")
    assert negative.endswith("(the API server would not take the pod)")
    journal = {"nodewright": this_release().nodewright, "rulesOf": this_release().rules_of}
    assert load({"add": a_pod(priorityClassName="gold")}, journal=journal).warnings == ()


WRONG = {
    '{"ad": {}}': ['s.yaml:1:72: spec.events[0].ad: unknown field; did you mean "add"?'],
    '{"restart": true}': ["s.yaml:1:72: spec.events[0].restart: Invalid value: true: must be a mapping, not true or false"],
    "{}": ["s.yaml:1:71: spec.events[0]: one of add, remove, found, killFailed, restart, observe, started, resize, devices, served is wanted"],
    '{"cpu": null}': ["s.yaml:1:71: spec.events[0]: one of add, remove, found, killFailed, restart, observe, started, resize, devices, served is wanted"],
    '{"add": {}, "remove": "x"}': ["s.yaml:1:71: spec.events[0]: is one thing, not add and remove"],
    '{"remove": 1}': ["s.yaml:1:72: spec.events[0].remove: Invalid value: 1: must be a text, not a number: put it in quotes"],
    '{"add": {"spec": {"container": []}}}': ['s.yaml:1:85: spec.events[0].add.spec.container: unknown field; did you mean "containers"?'],
    '{"remove": "x", "actions": [5]}': ["s.yaml:1:82: spec.events[0].actions[0]: Invalid value: 5: must be a mapping, not a number"],
    "5": ["s.yaml:1:71: spec.events[0]: Invalid value: 5: must be a mapping, not a number"],
}  # fmt: skip


@pytest.mark.parametrize(("event", "faults"), WRONG.items())
def test_what_is_no_event_is_named_with_its_place(event: str, faults: list[str]) -> None:
    assert refusal_of(json.loads(event)) == faults


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "s.yaml: one Scenario is wanted, not 0 documents"),
        (b"a: 1\n---\nb: 2", "s.yaml: one Scenario is wanted, not 2 documents"),
        (
            b"kind: NodeProfile",
            "s.yaml: a document with apiVersion: nodewright.dev/v1alpha1 and kind: Scenario is wanted",
        ),
        (json.dumps(HEAD).encode(), "s.yaml:1:1: spec: Required value"),
        (json.dumps({**HEAD, "spec": {}}).encode(), "s.yaml:1:63: spec.events: Required value"),
    ],
)
def test_what_is_no_scenario_is_refused(content: bytes, fault: str) -> None:
    assert refusal(content) == [fault]


def test_a_journal_of_another_release_is_refused() -> None:
    (fault,) = refusal_of(journal={"nodewright": "0.0.1", "rulesOf": "1.35"})
    assert fault == (
        "s.yaml: spec.journal: the journal of another release: nodewright 0.0.1 with the rules of Kubernetes 1.35, "
        f"and this is nodewright {this_release().nodewright} with those of 1.36; "
        "without spec.journal its events are replayed under today's rules"
    )


def test_two_pods_have_the_same_uid_only_one_after_the_other() -> None:
    twice = [{"add": a_pod("a", "1")}, {"remove": "default/a"}, {"add": a_pod("b", "1")}, {"remove": "1"}]
    load(*twice, {"found": a_pod("c", "1")})
    (fault,) = refusal_of(*twice[:3], {"remove": "other"}, {"found": a_pod("c", "1")})
    place, _, rest = fault.partition(": ")
    assert place.startswith("s.yaml:1:")
    assert rest == (
        'spec.events[4].found.metadata.uid: Duplicate value: "1": '
        "the pod of spec.events[2] has it; remove that one first"
    )
    # One that was refused may come again; without a uid it is a pod of its own.
    load({"add": a_pod("a")}, {"add": a_pod("a")})


def test_the_node_is_read_as_profiles_are() -> None:
    assert node_of(load(node={"metadata": {"name": "n"}, "spec": {}})).metadata.name == "n"
    (fault,) = refusal_of(node={"spec": {"cgroupVersion": 3}})
    assert fault.endswith("spec.cgroupVersion: Invalid value: 3: must be 1 or 2")
    (fault,) = refusal_of(node={"kind": "Node", "spec": {}})
    assert fault.endswith('spec.node.kind: Invalid value: "Node": must be NodeProfile')
    with pytest.raises(
        InputError, match=r"spec\.node: Required value: the scenario names no node: --node does"
    ):
        node_of(load())
