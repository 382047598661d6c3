"""The journal of a run replays to the same bytes, whatever happened."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.documents.profiles.scenario_files import (
    LoadedScenario,
    journal_header,
    scenario_from_file,
    scenario_node,
)
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import journal_event, journal_file, journal_head
from nodewright.predict.replay.scenario_run import replay
from nodewright.testing.nodes import STATIC_CPUS, a_profile

PROFILE = a_profile(
    devices={"v/gpu": "a@0 b@1 c@1"}, **STATIC_CPUS, topologyManagerPolicy="restricted", maxPods=4
)
NODE = plain_value(profile_document(PROFILE))
NAMES = st.sampled_from("abcdef")
AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("1", "2", "500m", "1.5")), "memory": st.sampled_from(("1Gi", "1.5Gi", "100M"))},
    optional={"v/gpu": st.sampled_from(("1", "2"))},
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": draw(AMOUNTS)}
    if draw(st.booleans()):
        resources["limits"] = resources["requests"]
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources}]}
    if draw(st.integers(0, 4)) == 0:
        spec["priorityClassName"] = draw(st.sampled_from(("system-node-critical", "gold")))
    return {"metadata": {"name": draw(NAMES), "labels": draw(st.just({}))}, "spec": spec}


RESTARTS = st.fixed_dictionaries(
    {},
    optional={
        "kubeletConfiguration": st.sampled_from(
            (
                PROFILE.spec.kubelet_configuration,
                {**PROFILE.spec.kubelet_configuration, "topologyManagerPolicy": "single-numa-node"},
                {"cpuManagerPolicy": "none"},
                {"maxPods": -1},
            )
        ),
        "devices": st.just({"v/gpu": [{"id": "a", "numaNodes": [0]}]}),
        "deletedFiles": st.just(["cpu_manager_state"]),
    },
)


@st.composite
def pressure_observations(draw: st.DrawFn) -> dict[str, Any]:
    """What the eviction manager sees: amounts around the thresholds, of pods that may be there or not."""
    if draw(st.integers(0, 5)) == 0:
        return {"conditions": draw(st.lists(st.sampled_from(("MemoryPressure", "DiskPressure"))))}
    left = st.fixed_dictionaries(
        {"memory.available": st.sampled_from(("50Mi", "90Mi", "2Gi"))},
        optional={"nodefs.available": st.sampled_from(("1", "90Gi"))},
    )
    used = st.fixed_dictionaries(
        {"pod": NAMES.map(lambda name: f"default/{name}"), "memory": st.sampled_from(("1Gi", "3Gi"))}
    )
    return {"usage": {"available": draw(left), "pods": draw(st.lists(used, max_size=4))}}


EVENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"observe": pressure_observations()}),
        st.fixed_dictionaries({"add": pods()}),
        st.fixed_dictionaries({"add": pods()}),
        st.fixed_dictionaries({"found": pods()}),
        st.fixed_dictionaries({"resize": pods()}),
        st.fixed_dictionaries({"remove": NAMES.map(lambda name: f"default/{name}")}),
        st.fixed_dictionaries({"killFailed": NAMES.map(lambda name: f"default/{name}")}),
        st.fixed_dictionaries({"restart": RESTARTS}),
    ),
    max_size=10,
)


def journal_of(loaded: LoadedScenario, folder: str) -> bytes:
    path = Path(folder) / "journal.json"
    assert loaded.node is not None
    with journal_file(path, journal_head(loaded.node, journal_header())) as journal:
        for event_outcome in replay(
            Node.from_profile(scenario_node(loaded)).state, loaded.scenario.spec.events
        ):
            journal.add(journal_event(loaded.events[event_outcome.number], event_outcome.actions))
    return path.read_bytes()


@given(events=EVENTS)
def test_a_journal_replays_to_the_same_bytes(events: list[dict[str, Any]]) -> None:
    document = {
        "apiVersion": "nodewright.dev/v1alpha1",
        "kind": "Scenario",
        "spec": {"node": NODE, "events": events},
    }
    with tempfile.TemporaryDirectory() as folder:
        first = journal_of(scenario_from_file(InputFile("scenario", json.dumps(document).encode())), folder)
        again = scenario_from_file(InputFile("journal", first))
        assert again.events == tuple(events)
        assert journal_of(again, folder) == first
