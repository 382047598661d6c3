"""The part of SARIF 2.1.0 that our logs use, as a JSON Schema; a property that is not listed is a violation."""

from typing import Any

_TEXT: dict[str, Any] = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_LINE = {"type": "integer"}


def _object(required: str = "", **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRING = {"type": "string"}
_RULE = _object(
    "id",
    id=_STRING,
    shortDescription=_TEXT,
    help=_object("text", text=_STRING, markdown=_STRING),
    helpUri=_STRING,
    defaultConfiguration=_object(level=_LEVEL),
)
_REGION = _object("startLine", startLine=_LINE, startColumn=_LINE)
_PHYSICAL = _object("artifactLocation", artifactLocation=_object(uri=_STRING), region=_REGION)
_LOCATION = _object(physicalLocation=_PHYSICAL, logicalLocations=_list(_object(fullyQualifiedName=_STRING)))
_RESULT = _object(
    "message",
    ruleId=_STRING,
    ruleIndex={"type": "integer"},
    level=_LEVEL,
    message=_TEXT,
    locations=_list(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _STRING},
)
_DRIVER = _object("name", name=_STRING, version=_STRING, informationUri=_STRING, rules=_list(_RULE))
_RUN = _object(
    "tool",
    tool=_object("driver", driver=_DRIVER),
    results=_list(_RESULT),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
)
SARIF_SCHEMA: dict[str, Any] = {
    **_object("version runs", version={"const": "2.1.0"}, runs=_list(_RUN)),
    "$defs": {},
}
SARIF_SCHEMA["properties"]["$schema"] = _STRING
