"""Answers as documents: JSON and YAML, the same content in both."""

import json
from enum import StrEnum
from typing import Any

import yaml

from nodewright.values.idset import IdSet
from nodewright.values.quantity import Quantity


def plain(value: Any) -> Any:
    """The value with amounts and sets as text, tuples as lists: what JSON and YAML can hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Quantity | IdSet | StrEnum):
        return str(value)
    return value


def as_json(value: Any) -> str:
    """The value as indented JSON with a newline at the end."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"


def as_yaml(value: Any) -> str:
    """The value as YAML, keys in the order given."""
    return str(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=1000))
