"""JSON Schemas (2020-12) of reports: types from the annotations, descriptions from the docstrings."""

import ast
import inspect
import sys
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from nodewright.documents.output.json_yaml import TEXT_TYPES, Inlined, Report, fact_field_name
from nodewright.model.kubernetes.objects import Pod

Schema: TypeAlias = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PRIMITIVES: dict[Any, Schema] = {
    Any: {},
    object: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
}
_POD: Schema = {
    "description": "A pod by namespace, name and UID.",
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("namespace", "name", "uid")},
    "required": ["namespace", "name", "uid"],
}


def report_schema(report: type[Report], title: str) -> Schema:
    """The JSON Schema of a report; every class that it contains is a definition of its own.

    Further fields are not forbidden, because later versions may add some.
    """
    definitions: dict[str, Schema] = {}
    reference = _schema(report, definitions)
    return {
        "$schema": _DIALECT,
        "title": title,
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }


def object_schema(object_type: type[msgspec.Struct]) -> Schema:
    """The JSON Schema of one of the project's own objects, e.g. a NodeProfile, as files have it."""
    schema = msgspec.json.schema(object_type, schema_hook=_text_or_number_schema)
    for definition in schema["$defs"].values():
        definition["description"] = inspect.cleandoc(definition.get("description", ""))
    return {"$schema": _DIALECT, "title": object_type.__name__, **schema}


def _text_or_number_schema(value_type: type) -> Schema:
    description = _text_schema(value_type)["description"]
    return {"description": description, "anyOf": [{"type": "string"}, {"type": "number"}]}


def _text_schema(value_type: type) -> Schema:
    assert issubclass(value_type, TEXT_TYPES), f"{value_type} has no JSON Schema"
    return {"description": inspect.cleandoc(value_type.__doc__ or ""), "type": "string"}


def _schema(hint: Any, definitions: dict[str, Schema]) -> Schema:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    if isinstance(hint, NewType):
        return _schema(hint.__supertype__, definitions)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return _any_of([_schema(item, definitions) for item in arguments if item is not msgspec.UnsetType])
    if origin is None:
        return _named(hint, definitions)
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if origin is tuple and arguments[-1:] != (...,):
        return _tuple([_schema(item, definitions) for item in arguments])
    assert issubclass(origin, Collection), f"{hint} has no JSON Schema"
    return {"type": "array", "items": _schema(arguments[0], definitions)}


def _any_of(schemas: list[Schema]) -> Schema:
    different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _tuple(items: list[Schema]) -> Schema:
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _named(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """A reference to the definition of a class."""
    name = "PodReference" if hint is Pod else hint.__name__
    if name not in definitions:
        definitions[name] = {}  # a type that contains itself refers to this entry
        definitions[name] = _definition(hint, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _definition(hint: Any, definitions: dict[str, Schema]) -> Schema:
    if hint is Pod:
        return _POD
    description = {"description": inspect.cleandoc(hint.__doc__)}
    if issubclass(hint, Enum):
        return {**description, "enum": [item.value for item in hint]}
    if issubclass(hint, TEXT_TYPES):
        return _text_schema(hint)
    if issubclass(hint, tuple):
        return {
            **description,
            **_tuple([_schema(item, definitions) for item in get_type_hints(hint).values()]),
        }
    assert issubclass(hint, msgspec.Struct), f"{hint} has no JSON Schema"
    merged = hint.merged if issubclass(hint, Report) else ()
    facts = [_members(get_type_hints(hint)[name]) for name in merged]
    objects = [_object(hint, fact, definitions) for fact in (facts[0] if facts else [None])]
    return {**description, **_any_of(objects)}


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _object(hint: Any, fact: Any, definitions: dict[str, Schema]) -> Schema:
    properties, required = _properties(hint, fact, definitions)
    return {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}


def _properties(hint: Any, fact: Any, definitions: dict[str, Schema]) -> tuple[dict[str, Schema], list[str]]:
    """The properties of an object and the names of those that are always present.

    A fact has its type as the first and leaves out what is None. ``fact`` is the type of a merged fact.
    """
    is_report = issubclass(hint, Report)
    properties: dict[str, Schema] = {} if is_report else {"type": {"const": hint.__name__}}
    required, texts = list(properties), _field_texts(hint)
    absent = msgspec.UnsetType if is_report else NoneType
    for name, json_name, field_hint in _fields(hint):
        members = _members(field_hint)
        present = [member for member in members if member is not absent]
        inlined = [member for member in present if isinstance(member, type) and issubclass(member, Inlined)]
        if is_report and name in hint.merged:
            members, present, inlined = (fact,), [fact], [fact]
        for member in inlined:
            its_properties, its_required = _properties(member, None, definitions)
            properties |= its_properties
            required += its_required if len(members) == 1 else []
        if inlined or not present:
            continue
        text = {"description": texts[name]} if name in texts else {}
        properties[json_name] = {**text, **_any_of([_schema(member, definitions) for member in present])}
        required += [json_name] if len(present) == len(members) else []
    return properties, required


def _fields(hint: Any) -> list[tuple[str, str, Any]]:
    """The fields of a report or a fact: name, JSON name, type."""
    hints = get_type_hints(hint)
    names = zip(hint.__struct_fields__, hint.__struct_encode_fields__, strict=True)
    is_report = issubclass(hint, Report)
    return [
        (name, json_name if is_report else fact_field_name(name), hints[name]) for name, json_name in names
    ]


def _field_texts(hint: Any) -> dict[str, str]:
    """The texts below the fields of a class and of the classes from which it inherits them."""
    texts: dict[str, str] = {}
    for base in reversed(hint.__mro__):
        if base is msgspec.Struct or not issubclass(base, msgspec.Struct):
            continue
        body = _classes(base.__module__)[base.__name__].body
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[field.target.id] = inspect.cleandoc(str(text.value.value))
    return texts


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The definitions of the classes of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
