"""Selectors of devices against the devices of given slices, and against the names that known drivers publish."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property

from nodewright.engine.core.claims.cel import (
    DeviceName,
    SelectorDevice,
    SelectorError,
    compile_selector,
    device_names,
)
from nodewright.engine.core.claims.device_selectors import selector_device
from nodewright.model.kubernetes.claims import DeviceClass, ResourceSlice

_NVIDIA_ATTRIBUTES = (
    "type uuid productName brand architecture cudaComputeCapability driverVersion cudaDriverVersion pcieBusID "
    "addressingMode minor index parentUUID parentMinor parentIndex profile deviceID vendorID numa"
)
_NVIDIA_CAPACITY = (
    "memory multiprocessors copyEngines decoders encoders jpegEngines ofaEngines addressableMemory"
)
_KNOWN_DRIVERS = {
    "gpu.nvidia.com": {
        **dict.fromkeys(_NVIDIA_ATTRIBUTES.split(), "attribute"),
        **dict.fromkeys(_NVIDIA_CAPACITY.split(), "capacity"),
        **{f"memorySlice{number}": "capacity" for number in range(8)},
    }
}
"""By domain: names, each with its kind.

Follows: NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go.
"""
_MIN_SIMILARITY = 0.75


class SelectorReview:
    """The given devices and classes."""

    def __init__(self, slices: Iterable[ResourceSlice], classes: Mapping[str, DeviceClass]) -> None:
        self._classes = classes
        self.devices = tuple(
            selector_device(each.spec.driver, device) for each in slices for device in each.spec.devices
        )
        self._of_class: dict[str, tuple[SelectorDevice, ...]] = {}

    @cached_property
    def _names(self) -> dict[str, dict[str, str]]:
        """The names of the devices with their kinds, by domain."""
        names: dict[str, dict[str, str]] = {device.driver: {} for device in self.devices}
        for device in self.devices:
            for kind, given in (("attribute", device.attributes), ("capacity", device.capacity)):
                for name in given:
                    domain, slash, identifier = name.rpartition("/")
                    of_domain = names.setdefault(domain if slash else device.driver, {})
                    is_both = of_domain.get(identifier, kind) != kind
                    of_domain[identifier] = "" if is_both else kind
        return names

    def misspelt(self, expression: str) -> Iterator[str]:
        """A sentence for each name that no device has and that is probably meant for another one."""
        for name in device_names(expression):
            text = self._misspelt_name(name)
            if text:
                yield f"{_place(expression, name)}: {text}"

    def misspelt_attribute(self, name: str) -> str:
        """The sentence for the attribute of a constraint; empty: a device has it, or nothing is known."""
        domain, _, own = name.rpartition("/")
        return self._misspelt_name(DeviceName("attribute", domain, own, 0)) if domain else ""

    def _misspelt_name(self, name: DeviceName) -> str:
        names = self._names.get(name.domain)
        if names is None and name.domain in _KNOWN_DRIVERS:
            meant = _meant(name, _KNOWN_DRIVERS[name.domain])
            owner = f"the driver {name.domain} publishes no {name.kind} `{name.name}`"
            return f"{owner}; did you mean {meant}?" if meant else ""
        if names is None:
            close = get_close_matches(name.domain, self._names, n=1, cutoff=_MIN_SIMILARITY)
            text = f"no device of the given slices has names in domain {name.domain}"
            return f"{text}; did you mean `{close[0]}`?" if close else ""
        if names.get(name.name) in (name.kind, ""):
            return ""
        meant = _meant(name, names)
        if not meant and name.is_guarded:
            return ""
        article = "an" if name.kind == "attribute" else "a"
        text = (
            f"no device of the given slices has {article} {name.kind} `{name.name}` in domain {name.domain}"
        )
        return f"{text}; did you mean {meant}?" if meant else text

    def refused_devices(self, expression: str, class_name: str) -> int:
        """The number of devices if none of them meets the selector, and no name in it says why; else 0.

        ``class_name``: a given class, whose devices count; empty: all devices count.
        """
        if class_name not in self._of_class:
            devices = self.devices
            for selector in self._classes[class_name].spec.selectors if class_name else ():
                devices = _matching(selector.cel.expression if selector.cel else "", devices)
            self._of_class[class_name] = devices
        devices = self._of_class[class_name]
        if _matching(expression, devices) or any(True for _ in self.misspelt(expression)):
            return 0
        return len(devices)


def _matching(expression: str, devices: Iterable[SelectorDevice]) -> tuple[SelectorDevice, ...]:
    """The devices for which the expression is true; it may fail for others."""
    selector = compile_selector(expression)

    def is_match(device: SelectorDevice) -> bool:
        try:
            return selector.matches(device)
        except SelectorError:
            return False

    return tuple(filter(is_match, devices))


def _meant(name: DeviceName, kinds: Mapping[str, str]) -> str:
    """The known name that is closest, with its kind; empty: none is close."""
    if kinds.get(name.name) == name.kind:
        return ""
    # Of names that differ in case only, the one that is written so comes last.
    lower = {known.lower(): known for known in sorted(kinds, key=name.name.__eq__)}
    close = get_close_matches(name.name.lower(), lower, n=1, cutoff=_MIN_SIMILARITY)
    return f"`{lower[close[0]]}` ({kinds[lower[close[0]]] or name.kind})" if close else ""


def _place(expression: str, name: DeviceName) -> str:
    before = expression[: name.column - 1].split("\n")
    column = f"column {len(before[-1]) + 1}"
    return f"line {len(before)}, {column}" if "\n" in expression else column
