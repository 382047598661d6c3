"""Eviction thresholds, parsed from the kubelet's configuration or command line.

Each signal has the resource that it observes, the node condition for pressure, and the taint of that condition.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import isfinite
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.objects import Taint
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import NumberError, float32, parse_float32
from nodewright.model.values.quantity import INT64_MIN, Quantity, QuantityError, QuantityFormat, fits_int64

NO_GRACE_PERIOD = Duration()


class Signal(StrEnum):
    """A signal that eviction observes."""

    MEMORY_AVAILABLE = "memory.available"
    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    PID_AVAILABLE = "pid.available"


class ThresholdValue(msgspec.Struct, frozen=True, eq=False):
    """An amount, or a fraction of the capacity.

    Units: `fraction` is a 32-bit float, as the kubelet computes it: 10 % is a little more than a tenth.
    """

    quantity: Quantity | None = None
    fraction: float = 0.0
    text: str = ""
    """The text in the configuration, which does not distinguish values."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ThresholdValue):
            return NotImplemented
        return (self.quantity, self.fraction) == (other.quantity, other.fraction)

    def __hash__(self) -> int:
        return hash((self.quantity, self.fraction))

    def of(self, capacity: Quantity) -> Quantity:
        """The value as an amount.

        Follows: v1.36, eviction/api/types.go, GetThresholdQuantity.
        """
        if self.quantity is not None:
            return self.quantity
        product = float(capacity.value()) * self.fraction
        # Go converts NaN (`nan%`) and what exceeds 64 bits to the least integer on amd64 and arm64.
        fits = isfinite(product) and fits_int64(int(product))
        return Quantity.of(int(product) if fits else INT64_MIN, QuantityFormat.BINARY_SI)


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """Eviction begins when the signal is below the value for the grace period; none: immediately (hard)."""

    signal: Signal
    value: ThresholdValue
    grace_period: Duration = NO_GRACE_PERIOD
    min_reclaim: ThresholdValue | None = None

    @property
    def is_hard(self) -> bool:
        """Whether eviction begins immediately."""
        return not self.grace_period


DEFAULT_EVICTION_HARD = {
    Signal.MEMORY_AVAILABLE.value: "100Mi",
    Signal.NODEFS_AVAILABLE.value: "10%",
    Signal.NODEFS_INODES_FREE.value: "5%",
    Signal.IMAGEFS_AVAILABLE.value: "15%",
    Signal.IMAGEFS_INODES_FREE.value: "5%",
}
"""The default of `evictionHard`.

Follows: v1.36, eviction/defaults_linux.go, DefaultEvictionHard.
"""


class EvictionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The eviction settings of the configuration, as texts by signal."""

    hard: Mapping[str, str]
    soft: Mapping[str, str] = msgspec.field(default_factory=dict)
    soft_grace_period: Mapping[str, str] = msgspec.field(default_factory=dict)
    minimum_reclaim: Mapping[str, str] = msgspec.field(default_factory=dict)


class ParsedThresholds(msgspec.Struct, frozen=True):
    """The thresholds of the settings; with faults, those that could be parsed."""

    thresholds: tuple[Threshold, ...]
    faults: tuple[ConfigFault, ...] = ()


def parse_thresholds(settings: EvictionSettings, *, for_pods: bool = False) -> ParsedThresholds:
    """The thresholds of the settings: hard ones, soft ones, then (``for_pods``) those on allocatable memory.

    ``for_pods`` means that `enforceNodeAllocatable` has `pods`: each memory threshold without a grace period
    then also applies to the memory of all pods together.

    Errors:  in the value, the one that the kubelet reports first.
    Follows: v1.36, eviction/helpers.go, ParseThresholdConfig.
    Departs: signals in order, where the kubelet iterates over a map; all faults, where it stops at the first.
    """
    faults: list[ConfigFault] = []
    values = _parsed_setting("evictionHard", settings.hard, _threshold_value, faults)
    soft_values = _parsed_setting("evictionSoft", settings.soft, _threshold_value, faults)
    periods = _parsed_setting("evictionSoftGracePeriod", settings.soft_grace_period, _grace_period, faults)
    reclaims = _parsed_setting("evictionMinimumReclaim", settings.minimum_reclaim, _minimum_reclaim, faults)
    # A period that cannot be parsed has its own fault; a threshold without a period has this one.
    faults += [
        _missing_grace_period(signal)
        for signal in soft_values
        if signal.value not in settings.soft_grace_period
    ]
    thresholds = [
        Threshold(signal=signal, value=value, min_reclaim=reclaims.get(signal))
        for signal, value in values.items()
    ]
    thresholds += [
        Threshold(signal=signal, value=value, grace_period=periods[signal], min_reclaim=reclaims.get(signal))
        for signal, value in soft_values.items()
        if signal in periods
    ]
    if for_pods:
        thresholds += [
            replace(threshold, signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE)
            for threshold in thresholds
            if threshold.signal is Signal.MEMORY_AVAILABLE and threshold.is_hard
        ]
    return ParsedThresholds(tuple(thresholds), tuple(faults))


T = TypeVar("T")
_Parse: TypeAlias = Callable[[str, str], T | None]


class _SettingError(ValueError):
    """A setting that the kubelet rejects; the message is the kubelet's."""


def _parsed_setting(
    name: str, texts: Mapping[str, str], parse: _Parse[T], faults: list[ConfigFault]
) -> dict[Signal, T]:
    """The parsed values of a setting by signal; adds to the faults what cannot be parsed."""
    parsed: dict[Signal, T] = {}
    for signal, text in sorted(texts.items()):
        try:
            value = parse(_known_signal(signal), text)
        except (_SettingError, NumberError, QuantityError, DurationError) as error:
            faults.append(
                ConfigFault(stage=ConfigStage.STARTUP, text=str(error), path=f"{name}[{signal}]", value=text)
            )
            continue
        if value is not None:
            parsed[Signal(signal)] = value
    return parsed


def _known_signal(signal: str) -> str:
    if signal not in _SIGNALS:
        raise _SettingError(f"unsupported eviction signal {signal}")
    return signal


def _threshold_value(signal: str, text: str) -> ThresholdValue | None:
    """The value; None: the threshold is disabled."""
    if not text.endswith("%"):
        quantity = Quantity.parse(text)
        if quantity.sign() <= 0:
            raise _SettingError(f"eviction threshold {signal} must be positive: {quantity}")
        return ThresholdValue(quantity, text=text)
    if text in ("0%", "100%"):
        return None
    fraction = _fraction(text)
    if fraction < 0:
        raise _SettingError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
    if fraction > 1:
        raise _SettingError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
    return ThresholdValue(fraction=fraction, text=text)


def _grace_period(signal: str, text: str) -> Duration:
    del signal
    period = Duration.parse(text)
    if period < NO_GRACE_PERIOD:
        raise _SettingError(f"invalid eviction grace period specified: {text}, must be a positive value")
    return period


def _minimum_reclaim(signal: str, text: str) -> ThresholdValue:
    if not text.endswith("%"):
        quantity = Quantity.parse(text)
        if quantity.sign() < 0:
            raise _SettingError(f"negative eviction minimum reclaim specified for {signal}")
        return ThresholdValue(quantity, text=text)
    fraction = _fraction(text)
    if fraction <= 0:
        raise _SettingError(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
    return ThresholdValue(fraction=fraction, text=text)


def _fraction(percentage: str) -> float:
    """The percentage as a fraction, computed in 32-bit floats; no negative zero."""
    return float32(parse_float32(percentage.rstrip("%")) / 100) + 0.0


def _missing_grace_period(signal: Signal) -> ConfigFault:
    return ConfigFault(
        stage=ConfigStage.STARTUP,
        text=f"grace period must be specified for the soft eviction threshold {signal}",
        path=f"evictionSoftGracePeriod[{signal}]",
    )


_SIGNALS = frozenset(signal.value for signal in Signal)


class NodeCondition(StrEnum):
    """A pressure condition of a node, in the order in which several are listed."""

    DISK_PRESSURE = "DiskPressure"
    MEMORY_PRESSURE = "MemoryPressure"
    PID_PRESSURE = "PIDPressure"

    @property
    def taint(self) -> Taint:
        """The taint that the control plane adds to a node with this condition.

        Follows: v1.36, pkg/controller/nodelifecycle/node_lifecycle_controller.go, doNoScheduleTaintingPass.

        >>> NodeCondition.MEMORY_PRESSURE.taint.key
        'node.kubernetes.io/memory-pressure'
        """
        return _CONDITION_TAINTS[self]


SIGNAL_RESOURCES: Mapping[Signal, str] = {
    Signal.MEMORY_AVAILABLE: MEMORY,
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: MEMORY,
    Signal.NODEFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.IMAGEFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.CONTAINERFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.NODEFS_INODES_FREE: INODES,
    Signal.IMAGEFS_INODES_FREE: INODES,
    Signal.CONTAINERFS_INODES_FREE: INODES,
    Signal.PID_AVAILABLE: PIDS,
}
"""The resource that is reclaimed when a signal's threshold is met.

Follows: v1.36, eviction/helpers.go, signalToResource.
"""

_RESOURCE_CONDITIONS = {
    MEMORY: NodeCondition.MEMORY_PRESSURE,
    EPHEMERAL_STORAGE: NodeCondition.DISK_PRESSURE,
    INODES: NodeCondition.DISK_PRESSURE,
    PIDS: NodeCondition.PID_PRESSURE,
}
SIGNAL_CONDITIONS: Mapping[Signal, NodeCondition] = {
    signal: _RESOURCE_CONDITIONS[resource] for signal, resource in SIGNAL_RESOURCES.items()
}
"""The node condition when a signal's threshold is met.

Follows: v1.36, eviction/helpers.go, signalToNodeCondition.
"""

_CONDITION_TAINTS = {
    condition: Taint(key=f"node.kubernetes.io/{name}", effect="NoSchedule")
    for condition, name in (
        (NodeCondition.MEMORY_PRESSURE, "memory-pressure"),
        (NodeCondition.DISK_PRESSURE, "disk-pressure"),
        (NodeCondition.PID_PRESSURE, "pid-pressure"),
    )
}


class EvictionFlagError(ValueError):
    """A text that the flag does not accept; the message is the kubelet's."""


def eviction_settings_from_flags(
    hard: str | None = None, soft: str = "", soft_grace_period: str = "", minimum_reclaim: str = ""
) -> EvictionSettings:
    """The settings of `--eviction-hard`, `--eviction-soft` and the two related flags, as in the configuration.

    Without ``hard``, the defaults; with it, no defaults.

    Errors:  EvictionFlagError.
    Follows: v1.36, cmd/kubelet/app/options/options.go, AddKubeletConfigFlags.

    >>> eviction_settings_from_flags("memory.available<500Mi, nodefs.available<5%").hard
    {'memory.available': '500Mi', 'nodefs.available': '5%'}
    """
    return EvictionSettings(
        hard=dict(DEFAULT_EVICTION_HARD) if hard is None else parse_flag_pairs(hard, "<"),
        soft=parse_flag_pairs(soft, "<"),
        soft_grace_period=parse_flag_pairs(soft_grace_period, "="),
        minimum_reclaim=parse_flag_pairs(minimum_reclaim, "="),
    )


def parse_flag_pairs(text: str, separator: str) -> dict[str, str]:
    """Names and values of a flag that takes a list of pairs; of a repeated name, the last value.

    Errors:  EvictionFlagError.
    Follows: v1.36, component-base/cli/flag/{map_string_string,langle_separated_map_string_string}.go, Set.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        if not part:
            continue
        name, matched_separator, value = part.partition(separator)
        if not matched_separator:
            raise EvictionFlagError(f"malformed pair, expect string{separator}string")
        pairs[name.strip()] = value.strip()
    return pairs
