"""Objects with one odd field each: every field that an API server's schema has, with values that it may refuse."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
STRINGS = ("", "a", "A_b", "x" * 64, "x" * 254, "a/b", "/a", "../a", "a b", "é", " a", "-1", "Always", "1", "1.2.3.4", "a.b",
           "A.b/c", ":", "metadata.name", "%", None)  # fmt: skip
AMOUNTS = ("1Gi", "-1", "1m", "0", "1e3", 5, 0, -1, 1.5)
NUMBERS = (0, -1, 1, 2, 65535, 65536, 2**31 - 1, 2**31, "1", True, None)
KEYS = ("k", "", "A/b", "a/b/c", "é", "x" * 64, "-", "x" * 254 + "/a")
REQUIRED = {"name": "n", "image": "i", "mountPath": "/m", "devicePath": "/d", "key": "k", "operator": "Exists", "port": 80,
            "whenUnsatisfiable": "DoNotSchedule", "containerPort": 80, "resourceName": "cpu", "kind": "K", "apiVersion": "v1",
            "ip": "1.2.3.4", "driver": "a.b", "fieldPath": "metadata.name", "resource": "limits.cpu"}  # fmt: skip
"""What a field that must be there has while another one is odd."""
_NAMED_VALUE = re.compile(r'"([A-Za-z/_.-]{1,40})"')


class OddFields:
    """Walks the OpenAPI schema of a kind, as an API server serves it at `/openapi/v3`."""

    def __init__(self, schemas: Mapping[str, Any], kind: str) -> None:
        self._schemas = schemas
        self._root = next(
            schema
            for schema in schemas.values()
            if any(each["kind"] == kind for each in schema.get("x-kubernetes-group-version-kind", ()))
            and "properties" in schema
        )

    def changes(self, *skipped: str) -> Iterator[tuple[Path, Any]]:
        """Each field with each of its values; fields of these names are left out."""
        return self._changes(self._root, (), {"apiVersion", "kind", "status", *skipped}, ())

    def changed(self, base: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
        """The object with the value there, and with what its schema requires on the way."""
        result: dict[str, Any] = copy.deepcopy(dict(base))
        place: Any = result
        schema = self._root
        for step in path[:-1]:
            schema = self._part(schema, step)
            if isinstance(step, int):
                if not place:
                    place.append(self._least(schema, ""))
            elif place.get(step) is None:
                place[step] = self._least(schema, step)
            place = place[step]
        if path[-1] == 0:
            place[:1] = [value]
        else:
            place[path[-1]] = value
        return result

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while reference := _reference(schema):
            schema = self._schemas[reference]
        return schema

    def _part(self, schema: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
        schema = self._resolved(schema)
        if isinstance(step, int):
            part = schema["items"]
        else:
            part = schema.get("properties", {}).get(step) or schema["additionalProperties"]
        assert isinstance(part, dict)
        return part

    def _least(self, schema: Mapping[str, Any], name: str) -> Any:
        """A value with what must be there."""
        schema = self._resolved(schema)
        if "properties" in schema:
            fields = schema["properties"]
            needed = [*schema.get("required", ()), *(["image"] if "imagePullPolicy" in fields else ())]
            return {field: self._least(fields[field], field) for field in needed}
        if schema.get("type") == "array":
            return [self._least(schema["items"], name)]
        if "additionalProperties" in schema:
            return {"k": self._least(schema["additionalProperties"], "value")}
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return 80 if "port" in name.lower() else 1
        return True if kind == "boolean" else REQUIRED.get(name, "1" if kind is None else "a")

    def _changes(
        self, schema: Mapping[str, Any], path: Path, skipped: set[str], within: tuple[str, ...]
    ) -> Iterator[tuple[Path, Any]]:
        if reference := _reference(schema):
            if reference in within:
                return
            within = (*within, reference)
        schema = self._resolved(schema)
        values = tuple(self._values(schema, str(path[-1])) if path else ())
        yield from ((path, value) for value in values)
        parts: list[str | int] = [name for name in schema.get("properties", {}) if name not in skipped]
        if "items" in schema:
            parts = [0]
        elif "additionalProperties" in schema:
            parts = ["k"]
        for part in parts:
            yield from self._changes(self._part(schema, part), (*path, part), skipped, within)

    def _values(self, schema: Mapping[str, Any], name: str) -> Iterator[Any]:
        if "properties" in schema:
            yield from ({}, None)
        elif "items" in schema:
            items = self._least(schema, name)
            yield from ([], None, items, copy.deepcopy(items) * 2)
        elif "additionalProperties" in schema:
            value = self._least(schema["additionalProperties"], "value")
            yield from ({}, None, *({key: value} for key in KEYS))
        elif schema.get("type") in ("integer", "number"):
            yield from NUMBERS
        elif schema.get("type") == "boolean":
            yield from (True, False, None, "true", 1)
        else:
            yield from (*STRINGS, *_NAMED_VALUE.findall(schema.get("description", "")))
            yield from AMOUNTS if "oneOf" in schema else ()


def _reference(schema: Mapping[str, Any]) -> str:
    """The name of the schema that this one stands for; empty if it is one itself."""
    alone = schema["allOf"][0] if len(schema.get("allOf", ())) == 1 else schema
    return str(alone.get("$ref", "")).rpartition("/")[2]
