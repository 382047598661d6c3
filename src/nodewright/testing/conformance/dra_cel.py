"""Family dra-cel: selectors of devices, compiled and evaluated for one device."""

from collections.abc import Mapping
from typing import Any

from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.cel import (
    SelectorDevice,
    SelectorError,
    compile_selector,
)
from nodewright.model.kubernetes.device_attributes import AttributeValue, Version
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Quantity
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """Whether the device matches, or why the selector does not compile or cannot be evaluated."""
    selector = compile_selector(
        question["expression"],
        features=AllocatorRules.of(question_gates(question, release)).selector_features,
        new_expression=question.get("newExpression", False),
    )
    if selector.error is not None:
        return {"compileError": selector.error}
    device = SelectorDevice(
        question["driver"],
        {name: _attribute(value) for name, value in question.get("attributes", {}).items()},
        {name: Quantity.parse(item["value"]) for name, item in question.get("capacity", {}).items()},
        question.get("allowMultipleAllocations", False),
    )
    try:
        return {"matches": selector.matches(device, question.get("costLimit", 1_000_000))}
    except SelectorError as error:
        return {"error": str(error)}


def _attribute(value: dict[str, Any]) -> AttributeValue:
    for kind, item in value.items():
        if kind == "version":
            return Version(item)
        if kind == "versions":
            return tuple(map(Version, item))
        return tuple(item) if isinstance(item, list) else item
    return None
