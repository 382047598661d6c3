"""Family dra-cel: selectors of devices, compiled and evaluated for one device."""

from collections.abc import Mapping
from typing import Any

from nodewright.engine.core.claims.cel import (
    SelectorDevice,
    SelectorError,
    SelectorFeatures,
    compile_selector,
)
from nodewright.model.kubernetes.device_attributes import AttributeValue, Version
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Quantity


def answer(question: dict[str, Any], _machines: Mapping[str, Any], _release: ReleaseTable) -> Any:
    """Whether the device matches, or why the selector does not compile or cannot be evaluated."""
    gates = question.get("featureGates", {})
    selector = compile_selector(
        question["expression"],
        features=SelectorFeatures(
            consumable_capacity=gates.get("DRAConsumableCapacity", True),
            list_type_attributes=gates.get("DRAListTypeAttributes", False),
        ),
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
