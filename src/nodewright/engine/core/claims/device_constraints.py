"""Constraints among the devices of a claim: an attribute in common, or different ones."""

from typing import TypeAlias

from nodewright.engine.core.claims.allocation_values import AttributeConflict, DeviceID, Outcome
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.model.kubernetes.claims import Device, DeviceAttribute, DeviceConstraint
from nodewright.model.kubernetes.device_attributes import Version

_Value: TypeAlias = tuple[str, object]
"""The kind of a value and the value, so that 1 and true are different; with list attributes, a set of values."""
UNKNOWN: _Value = ("", None)
"""A value of no kind that can be compared."""


class AttributeConstraint:
    """What holds among the devices of some requests of a claim, and those that the search has taken.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/{allocator_incubating,constraint}.go,
        matchAttributeConstraint, distinctAttributeConstraint; experimental/ for lists.
    """

    def __init__(self, constraint: DeviceConstraint, rules: AllocatorRules) -> None:
        self.requests = constraint.requests
        self.is_match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._rules = rules
        self._devices = 0
        self._common: _Value = UNKNOWN
        self._last: dict[str, _Value] = {}
        self._values: dict[DeviceID, _Value | None] = {}

    def applies_to(self, request: str, alternative: str) -> bool:
        """Whether the devices of the request, or of its alternative, are compared."""
        return (
            not self.requests
            or request in self.requests
            or (bool(alternative) and f"{request}/{alternative}" in self.requests)
        )

    def add(self, request: str, device: Device, device_id: DeviceID) -> Outcome | None:
        """Takes the device for the request; why not, if it does not fit."""
        value = self._value(device, device_id)
        if value is None:
            return Outcome.MATCH_MISSING if self.is_match else Outcome.DISTINCT_MISSING
        if self._devices == 0:
            # The first device fits always.
            if self._rules.list_attributes and value is UNKNOWN and self.is_match:
                return Outcome.MATCH_DIFFERENT
            self._common = value
        elif self.is_match:
            common = self._intersection(self._common, value)
            if common is None:
                return Outcome.MATCH_DIFFERENT
            self._common = common
        elif any(self._is_duplicate(value, other) for other in self._last.values()):
            return Outcome.DISTINCT_DUPLICATE
        if not self.is_match:
            # Only the latest device of a request is remembered.
            self._last[request] = value
        self._devices += 1
        return None

    def remove(self, request: str) -> None:
        """Gives the latest device of the request back."""
        self._last.pop(request, None)
        self._devices -= 1

    def conflict(self, device: Device, device_id: DeviceID) -> AttributeConflict:
        """What the device is compared with."""
        value = self._value(device, device_id)
        others = (self._common,) if self.is_match else tuple(self._last.values())
        return AttributeConflict(
            attribute=self.attribute,
            value=None if value is None else _text(value),
            others=tuple(map(_text, others)) if value is not None else (),
        )

    def excludes(self, device_id: DeviceID) -> bool:
        """Whether the device is known to have another value than those that were taken."""
        return (
            self.is_match and self._devices > 0 and self._values.get(device_id, self._common) != self._common
        )

    def unset_value(self, device: Device, device_id: DeviceID) -> object | None:
        """The value that the device would set for others to match; None: it is not the first, or none is set."""
        return self._value(device, device_id) if self.is_match and not self._devices else None

    def value_of(self, device: Device, device_id: DeviceID) -> object:
        """What of the device is compared."""
        return self._value(device, device_id)

    def _intersection(self, common: _Value, value: _Value) -> _Value | None:
        if UNKNOWN in (common, value) or common[0] != value[0]:
            return None
        if not self._rules.list_attributes:
            return value if common == value else None
        assert isinstance(common[1], frozenset)
        assert isinstance(value[1], frozenset)
        both = common[1] & value[1]
        return (common[0], both) if both else None

    def _is_duplicate(self, value: _Value, other: _Value) -> bool:
        if value is UNKNOWN:
            return True
        return self._intersection(other, value) is not None

    def _value(self, device: Device, device_id: DeviceID) -> _Value | None:
        if device_id not in self._values:
            attribute = _attribute(device, device_id[0], self.attribute)
            self._values[device_id] = None if attribute is None else self._comparable(attribute, device_id)
        return self._values[device_id]

    def _comparable(self, attribute: DeviceAttribute, device_id: DeviceID) -> _Value:
        value = attribute.value
        if value is None or (isinstance(value, tuple) and not self._rules.list_attributes):
            return UNKNOWN
        values = value if isinstance(value, tuple) else (value,)
        kind = type(values[0]).__name__
        plain = [each.text if isinstance(each, Version) else each for each in values]
        if self._rules.list_attributes:
            return kind, frozenset(plain)
        if not self.is_match and not self._rules.is_later:
            return kind, device_id
        return kind, plain[0]


def _attribute(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute of that name; the driver's own ones may be named without its domain.

    Follows: v1.36, allocator_incubating.go, lookupAttribute.
    """
    if name in device.attributes:
        return device.attributes[name]
    domain, slash, own = name.partition("/")
    return device.attributes.get(own) if slash and domain == driver else None


def _text(value: _Value) -> str:
    content = value[1]
    if isinstance(content, frozenset):
        return ", ".join(sorted(map(str, content)))
    return str(content).lower() if isinstance(content, bool) else str(content)
