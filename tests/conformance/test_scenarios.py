"""A recorded node is a profile plus events: as a Scenario it comes to the recorded decisions."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.scenario_files import LoadedScenario, scenario_from_file, scenario_node
from nodewright.model.reasons.reason import kubelet_text
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_run import EventOutcome, replay
from nodewright.testing.conformance.vectors import RECORDED

VECTORS = Path(__file__).parent / "vectors" / "node.jsonl.gz"
SEED = int(os.environ.get("FAULT_SEED") or 0)
SHARE = int(os.environ.get("RECORDED_SHARE") or 8)


def recorded() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        return [vector for vector in map(json.loads, lines) if "error" not in vector["expect"]]


def as_scenario(vector: dict[str, Any]) -> LoadedScenario:
    spec = {name: value for name, value in vector["input"].items() if name not in ("events", "tag")}
    spec.setdefault("kubernetesVersion", RECORDED.name)
    document = {
        "apiVersion": "nodewright.dev/v1alpha1",
        "kind": "Scenario",
        "spec": {"node": {"spec": spec}, "events": vector["input"]["events"]},
    }
    return scenario_from_file(InputFile(vector["id"], json.dumps(document).encode()))


def decided(one: EventOutcome) -> dict[str, Any]:
    """What came of an event, as it was recorded."""
    document: dict[str, Any] = {"pods": list(one.final_state.pods)}
    if one.decision is None:
        return document
    document |= {"uid": one.pod.uid if one.pod else "", "admitted": one.decision == "admitted"}
    if one.victims is not None:
        document["preempted"] = [victim.pod.uid for victim in one.victims.victims]
    if not document["admitted"]:
        result = kubelet_text(one.because[0])
        document |= {"reason": result.reason, "message": result.message}
    return document


def expected(event: dict[str, Any]) -> dict[str, Any]:
    names = ("uid", "admitted", "preempted", "reason", "message")
    return {"pods": event["state"]["pods"], **{name: event[name] for name in names if name in event}}


def assert_as_recorded(vector: dict[str, Any]) -> None:
    loaded = as_scenario(vector)
    happened = replay(Node.from_profile(scenario_node(loaded)).state, loaded.scenario.spec.events)
    assert list(map(decided, happened)) == list(map(expected, vector["expect"]["events"])), vector["id"]


# Their huge pages do not fit into their memory: profiles of such machines are refused.
IMPOSSIBLE = {"node-dev-0015", "node-dev-0261"}


@pytest.mark.slow
def test_every_recorded_node_replays_as_a_scenario() -> None:
    """All of them in `make soak`; in `make test` a share, others with each seed: `test_vectors` asks for all of them."""
    vectors = [vector for vector in recorded() if vector["id"] not in IMPOSSIBLE]
    for vector in vectors[SEED % SHARE :: SHARE]:
        assert_as_recorded(vector)
