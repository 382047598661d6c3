"""Whether a device meets selectors, and the node fields of its own."""

from nodewright.engine.core.claims.allocation_values import (
    AllocationError,
    AllocationInput,
    ConditionsOff,
    Fact,
    OtherNode,
    SelectorFailedError,
    SelectorUnmet,
)
from nodewright.engine.core.claims.cel import SelectorDevice, SelectorError, compile_selector
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.claims.node_selection import NodeSelectorError, is_for_node
from nodewright.engine.core.claims.searched_requests import Candidate, SearchedRequest
from nodewright.model.kubernetes.claims import Device, DeviceSelector


def selector_device(driver: str, device: Device, *, is_full: bool = True) -> SelectorDevice:
    """What selectors see of a driver's device; ``is_full``: also whether it is shared."""
    return SelectorDevice(
        driver,
        {name: attribute.value for name, attribute in device.attributes.items()},
        {name: capacity.value for name, capacity in device.capacity.items()},
        is_full and device.allow_multiple_allocations,
    )


class DeviceSelectors:
    """Evaluates the selectors of classes and requests, each once for a device.

    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, isSelectable,
        selectorsMatch.
    """

    def __init__(self, asked: AllocationInput) -> None:
        self._node, self._rules = asked.node, asked.rules
        slices = asked.slices if isinstance(asked.slices, IndexedSlices) else IndexedSlices(asked.slices)
        self._known = slices.seen_by_selectors
        self.evaluated = 0
        """How many devices were asked about."""

    def is_selectable(
        self, request: SearchedRequest, candidate: Candidate, known: dict[int, Fact | None]
    ) -> bool:
        """Whether the device may serve the request; ``known`` keeps what was found out.

        Errors: AllocationError where a selector does not compile or fails.
        """
        index = candidate.index
        if index not in known:
            known[index] = self._obstacle(request, candidate)
        return known[index] is None

    def _obstacle(self, request: SearchedRequest, candidate: Candidate) -> Fact | None:
        self.evaluated += 1
        device = candidate.device
        if device.binding_conditions and not self._rules.binding:
            return ConditionsOff()
        own_class = request.device_class
        unmet = self._unmet(own_class.spec.selectors, candidate, f"class {own_class.metadata.name}")
        if unmet is not None:
            return SelectorUnmet(unmet, own_class.metadata.name)
        unmet = self._unmet(request.spec.selectors, candidate, f"claim {request.claim_name}")
        if unmet is not None:
            return SelectorUnmet(unmet)
        if candidate.piece.spec.per_device_node_selection:
            try:
                return None if is_for_node(device, self._node) else OtherNode()
            except NodeSelectorError as error:
                raise AllocationError(str(error)) from None
        return None

    def _unmet(self, selectors: tuple[DeviceSelector, ...], candidate: Candidate, owner: str) -> str | None:
        """The first selector that is false."""
        for index, selector in enumerate(selectors):
            place = f"{owner}: selector #{index}"
            if selector.cel is None:
                raise AllocationError(f"{place}: CEL expression empty (unsupported selector type?)")
            compiled = compile_selector(selector.cel.expression, features=self._rules.selector_features)
            if compiled.error is not None:
                text = f"{place}: CEL compile error: {compiled.error}"
                raise SelectorFailedError(text, selector.cel.expression, compiled.error)
            try:
                if not compiled.matches(self._seen(candidate)):
                    return selector.cel.expression
            except SelectorError as error:
                text = f"{place}: CEL runtime error: {error}"
                raise SelectorFailedError(text, selector.cel.expression, str(error)) from None
        return None

    def _seen(self, candidate: Candidate) -> SelectorDevice:
        if candidate.seen_by_selectors is None:
            # Other implementations than the full one do not pass on whether devices are shared.
            is_full, driver, device = self._rules.is_full, candidate.id[0], candidate.device
            key = driver, id(device), is_full
            if key not in self._known:
                self._known[key] = device, selector_device(driver, device, is_full=is_full)
            candidate.seen_by_selectors = self._known[key][1]
        return candidate.seen_by_selectors
