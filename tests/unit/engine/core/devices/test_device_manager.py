import pytest

from nodewright.engine.core.devices.device_state import (
    DeviceManager,
    PluginBehavior,
    highest,
    lowest,
)
from nodewright.model.hardware import NUMANode
from nodewright.model.values.idset import NUMASet

NODES = (NUMANode(node_id=0), NUMANode(node_id=3))


def test_plugins_prefer_the_lowest_ids_unless_it_is_said_otherwise() -> None:
    made = DeviceManager.of(NODES, ["a/x", "a/y", "a/z"], {"a/y": "highest", "a/z": "absent"})
    assert made.numa == NUMASet.of(0, 3)
    assert made.plugins == {
        "a/x": PluginBehavior(lowest),
        "a/y": PluginBehavior(highest),
        "a/z": PluginBehavior(None),
    }


def test_an_unknown_preference_is_no_preference_at_all_but_an_error() -> None:
    with pytest.raises(KeyError, match="loudest"):
        DeviceManager.of(NODES, ["a/x"], {"a/x": "loudest"})


@pytest.mark.parametrize(
    ("must_include", "size", "low", "high"),
    [
        ("", 2, ["d1", "d10"], ["d3", "d2"]),
        ("d2", 2, ["d2", "d1"], ["d2", "d3"]),
        ("d2 d3", 1, ["d2", "d3"], ["d2", "d3"]),
    ],
)
def test_preferences_are_made_of_what_must_be_and_the_ends_of_the_rest(
    must_include: str, size: int, low: list[str], high: list[str]
) -> None:
    available = frozenset({"d1", "d2", "d3", "d10"})
    must = frozenset(must_include.split())
    assert lowest(available, must, size) == low
    assert highest(available, must, size) == high
