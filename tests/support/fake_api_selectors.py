"""Label and field selectors, as far as the fake API server understands them."""

import re
from typing import Any

_TERM = re.compile(r"\s*(!?[\w./-]+)\s*(?:(==|=|!=)\s*([\w./:-]*)|\s(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")


def has_labels(document: dict[str, Any], selector: str) -> bool:
    """Whether the object's labels match."""
    labels = document.get("metadata", {}).get("labels") or {}
    return all(_matches(labels.get(match[1].removeprefix("!")), match) for match in _TERM.finditer(selector))


def has_fields(document: dict[str, Any], selector: str) -> bool:
    """Whether the object's fields match."""
    return all(_matches(_field(document, match[1]) or "", match) for match in _TERM.finditer(selector))


def _matches(value: str | None, term: re.Match[str]) -> bool:
    name, operator, operand, set_operator, members = term.groups()
    if set_operator:
        is_member = value in [member.strip() for member in members.split(",")]
        return is_member == (set_operator == "in")
    if operator is None:
        return (value is None) == name.startswith("!")
    return (value == operand) == (operator != "!=")


def _field(document: dict[str, Any], path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
