"""A pod with many fields, and documents with each of their values replaced."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec

AMOUNTS = {"cpu": "1", "memory": "1Gi", "example.com/device": 1}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                }
            }
        },
        "overhead": {"cpu": "1m"},
        "priority": 5,
        "os": {"name": "linux"},
    },
    "status": {"phase": "Pending"},
}
VALUES: list[Any] = [
    None,
    True,
    -1,
    10**18,
    1.5,
    "",
    "x",
    "9" * 2000,
    "\n\u202e",
    [],
    [None],
    [[]],
    {},
    {"": None},
]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a document."""
    yield place
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield from places(member, (*place, key))


def changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    result = deepcopy(document)
    holder = result
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return result


def mutated(document: Any) -> Iterator[bytes]:
    """The document with each of its values replaced by each of others, and cut off."""
    for place in places(document):
        for value in VALUES:
            yield msgspec.json.encode(changed(document, place, value))
    content = msgspec.json.encode(document)
    yield from (content[:length] for length in range(0, len(content), 7))
    yield from (
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"Pod":' * 50_000,
        content + b"}",
        b"1e400",
        content.replace(b"1", b"1e9999"),
    )
