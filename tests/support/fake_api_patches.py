"""JSON patches, merge patches and strategic merge patches, as far as the fake API server understands them."""

import copy
from typing import Any

from tests.support.fake_api_objects import Document, StatusError

MERGE_KEYS = {"conditions": "type", "addresses": "type", "containers": "name", "env": "name", "taints": "key"}
"""Lists that a strategic merge patch merges by a key; all others it replaces."""


def patched(document: Document, patch: Any, content_type: str) -> Document:
    """The object after the patch."""
    document = copy.deepcopy(document)
    if content_type.startswith("application/json-patch"):
        return _json_patched(document, patch)
    if content_type.startswith("application/merge-patch"):
        return dict(_merged(document, patch, is_strategic=False))
    if content_type.startswith("application/strategic-merge-patch"):
        return dict(_merged(document, patch, is_strategic=True))
    raise StatusError(
        415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}"
    )


def _merged(document: Any, patch: Any, *, is_strategic: bool) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        elif is_strategic and name in MERGE_KEYS and isinstance(value, list):
            merged[name] = _merged_list(merged.get(name) or [], value, MERGE_KEYS[name])
        else:
            merged[name] = _merged(merged.get(name), value, is_strategic=is_strategic)
    return merged


def _merged_list(items: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {item[key]: item for item in items}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merged(merged.get(item[key], {}), item, is_strategic=True)
    return list(merged.values())


def _json_patched(document: Document, patch: list[Document]) -> Document:
    for operation in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        target: Any = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        place = int(last) if isinstance(target, list) and last != "-" else last
        match operation["op"]:
            case "test":
                if target.get(place) != operation["value"]:
                    raise StatusError(
                        422, "Invalid", "the server rejected our request due to an error in our request"
                    )
            case "remove":
                del target[place]
            case "add" if isinstance(target, list):
                target.insert(len(target) if place == "-" else place, operation["value"])
            case _:
                target[place] = operation["value"]
    return document
