"""Strategic merge patches between two documents, as the API server applies them."""

from collections.abc import Mapping
from typing import Any

NODE_LISTS: Mapping[str, str] = {"status.conditions": "type", "status.addresses": "type"}
"""The lists of a Node's status that are merged by a key, by their path."""
REPLACED_LISTS = frozenset({"status.addresses"})
"""Lists with a merge key that may repeat, so that a patch replaces them.

Follows: v1.36, component-helpers/node/util/status.go, fixupPatchForNodeStatusAddresses.
"""
POD_LISTS: Mapping[str, str] = {"status.conditions": "type", "status.podIPs": "ip", "status.hostIPs": "ip"}
"""The lists of a Pod's status that are merged by a key; others are replaced as a whole."""


def merge_patch(old: Any, new: Any, lists: Mapping[str, str]) -> dict[str, Any]:
    """The patch that turns one object into the other; empty: they are equal. A null counts as absent.

    ``lists`` are the merge keys of lists, by path.

    Follows: v1.36, apimachinery/pkg/util/strategicpatch/patch.go, CreateTwoWayMergePatch.

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"b": {"c": 3}}, {})
    {'a': None, 'b': {'c': 3}}
    """
    return _map_patch(old, new, lists, "")


def _map_patch(
    old: Mapping[str, Any], new: Mapping[str, Any], lists: Mapping[str, str], path: str
) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        place = f"{path}.{name}" if path else name
        if before == after:
            continue
        if after is None:
            patch[name] = None
        elif isinstance(before, dict) and isinstance(after, dict):
            members = _map_patch(before, after, lists, place)
            if members:
                patch[name] = members
        elif place in REPLACED_LISTS:
            patch[name] = [*after, {"$patch": "replace"}]
        elif place in lists and isinstance(after, list):
            patch |= _list_patch(before or [], after, (name, lists[place]))
        else:
            patch[name] = after
    return patch


def _list_patch(
    old: list[dict[str, Any]], new: list[dict[str, Any]], name_and_key: tuple[str, str]
) -> dict[str, Any]:
    """The changed, added and removed elements, and the order of all."""
    name, key = name_and_key
    before = {element[key]: element for element in old}
    after = {element[key]: element for element in new}
    changed: list[dict[str, Any]] = []
    for value, element in after.items():
        members = _map_patch(before.get(value, {}), element, {}, "")
        if members:
            changed.append({**members, key: value})
    changed += [{"$patch": "delete", key: value} for value in before if value not in after]
    order = [{key: value} for value in after]
    return {f"$setElementOrder/{name}": order, name: changed} if changed else {}
