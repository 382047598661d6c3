"""A validator for the part of JSON Schema that the schemas of reports use.

Stricter than the standard: an object with `properties` has no other properties, unless a schema for these is given.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def violations(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Where the value differs from the schema, as texts with the path."""
    return list(_violations(schema, value, "$", schema["$defs"]))


def _violations(schema: Mapping[str, Any], value: Any, path: str, definitions: Any) -> Iterator[str]:
    if "$ref" in schema:
        yield from _violations(definitions[schema["$ref"].removeprefix("#/$defs/")], value, path, definitions)
    if "anyOf" in schema:
        attempts = [list(_violations(option, value, path, definitions)) for option in schema["anyOf"]]
        if all(attempts):
            yield f"{path}: none of {len(attempts)} schemas: {min(attempts, key=len)}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not in {schema['enum']}"
    kind = schema.get("type")
    if kind is not None and not (
        isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    ):
        yield f"{path}: {value!r} is not of type {kind}"
    elif isinstance(value, dict) and kind == "object":
        yield from _object_violations(schema, value, path, definitions)
    elif isinstance(value, list) and kind == "array":
        first = schema.get("prefixItems", [])
        if len(value) < schema.get("minItems", 0) or (schema.get("items") is False and value[len(first) :]):
            yield f"{path}: {len(value)} items"
        for index, item in enumerate(value):
            its_schema = first[index] if index < len(first) else schema.get("items") or {}
            yield from _violations(its_schema, item, f"{path}[{index}]", definitions)


def _object_violations(
    schema: Mapping[str, Any], value: Mapping[str, Any], path: str, definitions: Any
) -> Iterator[str]:
    properties = schema.get("properties", {})
    yield from (f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, item in value.items():
        if name in properties:
            yield from _violations(properties[name], item, f"{path}.{name}", definitions)
        elif "additionalProperties" in schema:
            yield from _violations(schema["additionalProperties"], item, f"{path}.{name}", definitions)
        elif properties:
            yield f"{path}: {name} is not a property"
