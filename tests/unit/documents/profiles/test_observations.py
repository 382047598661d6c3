"""Observations in scenarios."""

from typing import Any

import pytest
import yaml

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.scenario_files import scenario_from_file
from nodewright.model.errors import InputError

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
