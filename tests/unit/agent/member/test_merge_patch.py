"""Strategic merge patches: what they contain, and that they do what they say."""

import pytest

from nodewright.agent.member.merge_patch import NODE_LISTS, POD_LISTS, merge_patch


def conditions(*states: tuple[str, str]) -> dict[str, object]:
    return {"status": {"conditions": [{"type": kind, "status": status} for kind, status in states]}}


def test_equal_documents_need_no_patch() -> None:
    assert merge_patch({"a": [1], "b": {}, "c": None}, {"a": [1], "b": {}}, {}) == {}


def test_a_changed_condition_is_patched_by_its_type_and_others_stay() -> None:
    old, new = (
        conditions(("Ready", "False"), ("Other", "True")),
        conditions(("Ready", "True"), ("Other", "True")),
    )
    assert merge_patch(old, new, POD_LISTS) == {
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Other"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }


def test_a_removed_condition_is_deleted() -> None:
    patch = merge_patch(
        conditions(("Ready", "True"), ("Old", "True")), conditions(("Ready", "True")), POD_LISTS
    )
    assert patch["status"]["conditions"] == [{"$patch": "delete", "type": "Old"}]


def test_addresses_are_replaced_because_their_types_repeat() -> None:
    old = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    new = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}
    assert merge_patch(old, new, NODE_LISTS)["status"]["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"$patch": "replace"},
    ]


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": {"b": 1}}, {"a": None}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({"a": 0}, {"a": False}, {}),
    ],
)
def test_members_are_set_and_removed(old: object, new: object, patch: object) -> None:
    assert merge_patch(old, new, {}) == patch
