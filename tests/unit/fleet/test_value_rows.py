"""Values become plain rows and the same values again; other rows are refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.checkpoint import SavedSimulation
from nodewright.fleet.value_rows import RowError, row_classes, rows_of, value_of
from nodewright.model.kubernetes.objects import Container, Pod, ResourceRequirements
from nodewright.model.values.topology_hints import Hint
from nodewright.testing.objects import a_pod

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


def test_an_object_that_is_shared_has_one_row() -> None:
    pod = a_pod("web", "cpu=1")
    container = pod.spec.containers[0]
    rows = rows_of(pod)
    assert [row[0] for row in rows].count("Container") == 1
    assert value_of(rows, Pod) == pod
    assert value_of(rows_of((container, container)[0]), Container) == container


def test_fields_can_be_omitted() -> None:
    rows = rows_of(a_pod("web", "cpu=1"), ("Pod.spec",))
    assert [row[0] for row in rows] == ["ObjectMeta", "PodStatus", "Pod"]
    assert value_of(rows, Pod, ("Pod.spec",)).spec is None
    with pytest.raises(RowError, match="is not of a known class"):
        value_of(rows_of(a_pod("web", "cpu=1")), Pod, ("Pod.spec",))
    rows[-1][rows[-1].index(None)] = "web"
    with pytest.raises(RowError, match=r"Pod.spec: must be null"):
        value_of(rows, Pod, ("Pod.spec",))


def test_the_classes_are_those_that_the_type_can_contain() -> None:
    omitted = frozenset({"NodeState.config"})
    assert {"NodeState", "Pod", "Holdings"} <= row_classes(NodeState, omitted).keys()
    classes = row_classes(SavedSimulation, omitted).keys()
    assert {"NodeState", "FleetPodRecord", "NoCommonNUMA"} <= classes
    assert not {"NodeConfig", "type", "Path", "Popen", "FunctionType"} & classes


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([], "there are no rows"),
        ({}, "there are no rows"),
        ([[]], "is not of a known class"),
        ([["Popen", ["id"]]], "is not of a known class"),
        ([["Hint"]], "has 2 fields, not 0"),
        ([["Hint", 3, True]], r"row 0, Hint.numa: must be of str"),
        ([["Hint", "1-2", 1]], r"Hint.preferred: must be of bool"),
        ([["Hint", "9" * 5000, True]], r"Hint.numa"),
    ],
)
def test_other_rows_are_refused(rows: Any, rule: str) -> None:
    with pytest.raises(RowError, match=rule):
        value_of(rows, Hint)


def test_rows_refer_to_rows_above_of_the_right_class() -> None:
    for reference in (0, 1, -1, True, None):
        with pytest.raises(RowError):
            value_of([["Pod", {"row": reference}, None, None]], Pod)
    rows = rows_of(a_pod("web", "cpu=1"))
    rows[-1][2] = {"row": 0}
    with pytest.raises(RowError, match="refers to a row of"):
        value_of(rows, Pod)


@given(
    st.sampled_from(["Pod", "Container", "PodSpec", "Hint", "NodeState"]), st.lists(JSON_VALUES, max_size=8)
)
def test_rows_of_any_json_are_taken_or_refused(name: str, fields: list[Any]) -> None:
    with contextlib.suppress(RowError):
        value_of([[name, *fields]], NodeState, ("NodeState.config",))


@given(st.integers(), st.integers(-3000, 3000))
def test_amounts_beyond_every_quantity_are_refused(unscaled: int, scale: int) -> None:
    rows = [["ResourceRequirements", {"cpu": [unscaled, scale, "", "", False]}, {}, []]]
    if abs(scale) <= 2000:
        assert value_of(rows, ResourceRequirements).requests["cpu"].unscaled == unscaled
    else:
        with pytest.raises(RowError, match="is not an amount"):
            value_of(rows, ResourceRequirements)
