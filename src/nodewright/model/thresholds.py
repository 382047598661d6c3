"""Eviction thresholds as values, and how the kubelet reads them from its configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import TypeAlias, TypeVar

from nodewright.model.faults import ConfigFault, Stage
from nodewright.values.duration import Duration, DurationError
from nodewright.values.golang import NumberError, float32, parse_float32
from nodewright.values.quantity import Format, Quantity, QuantityError
from nodewright.values.units import INT64_MIN, fits_int64

NO_WAIT = Duration()


class Signal(StrEnum):
    """Something that eviction watches."""

    MEMORY_AVAILABLE = "memory.available"
    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    PID_AVAILABLE = "pid.available"


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """An amount, or a fraction of the capacity.

    Units: `fraction` is a 32-bit float, as the kubelet computes it: 10 % is a little more than a tenth.
    """

    quantity: Quantity | None = None
    fraction: float = 0.0
    text: str = field(default="", compare=False)
    """What was written."""

    def of(self, capacity: Quantity) -> Quantity:
        """The amount that the value comes to.

        Follows: v1.36, eviction/api/types.go, GetThresholdQuantity.
        """
        if self.quantity is not None:
            return self.quantity
        product = float(capacity.value()) * self.fraction
        # What is no number (`nan%`) or too large for 64 bits comes to the least integer on the machines we know.
        fits = isfinite(product) and fits_int64(int(product))
        return Quantity.of(int(product) if fits else INT64_MIN, Format.BINARY_SI)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Eviction begins when the signal is less than the value for the grace period; none: at once (hard)."""

    signal: Signal
    value: ThresholdValue
    grace_period: Duration = NO_WAIT
    min_reclaim: ThresholdValue | None = None

    @property
    def is_hard(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.grace_period


DEFAULT_EVICTION_HARD = {
    Signal.MEMORY_AVAILABLE.value: "100Mi",
    Signal.NODEFS_AVAILABLE.value: "10%",
    Signal.NODEFS_INODES_FREE.value: "5%",
    Signal.IMAGEFS_AVAILABLE.value: "15%",
    Signal.IMAGEFS_INODES_FREE.value: "5%",
}
"""What `evictionHard` is when it is not given.

Follows: v1.36, eviction/defaults_linux.go, DefaultEvictionHard.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """The configuration's texts about eviction, by signal."""

    hard: Mapping[str, str]
    soft: Mapping[str, str] = field(default_factory=dict)
    soft_grace_period: Mapping[str, str] = field(default_factory=dict)
    minimum_reclaim: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds that settings say; with faults, those that could be read."""

    thresholds: tuple[Threshold, ...]
    faults: tuple[ConfigFault, ...] = ()


def parse_thresholds(settings: EvictionSettings, *, for_pods: bool = False) -> Thresholds:
    """The thresholds that the settings say: hard ones, soft ones, then (``for_pods``) those on allocatable memory.

    ``for_pods`` says that `enforceNodeAllocatable` has `pods`: each memory threshold without a grace period
    then counts for the memory of all pods together, too.

    Errors:  in the value, the one that the kubelet reports first.
    Follows: v1.36, eviction/helpers.go, ParseThresholdConfig.
    Departs: signals in order, where the kubelet walks a map; all faults, where it stops at the first.
    """
    faults: list[ConfigFault] = []
    values = _read("evictionHard", settings.hard, _threshold_value, faults)
    soft_values = _read("evictionSoft", settings.soft, _threshold_value, faults)
    periods = _read("evictionSoftGracePeriod", settings.soft_grace_period, _grace_period, faults)
    reclaims = _read("evictionMinimumReclaim", settings.minimum_reclaim, _minimum_reclaim, faults)
    # A period that cannot be read has its own fault; a threshold without any has this one.
    faults += [_no_period(signal) for signal in soft_values if signal.value not in settings.soft_grace_period]
    found = [
        Threshold(signal=signal, value=value, min_reclaim=reclaims.get(signal))
        for signal, value in values.items()
    ]
    found += [
        Threshold(signal=signal, value=value, grace_period=periods[signal], min_reclaim=reclaims.get(signal))
        for signal, value in soft_values.items()
        if signal in periods
    ]
    if for_pods:
        found += [
            replace(threshold, signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE)
            for threshold in found
            if threshold.signal is Signal.MEMORY_AVAILABLE and threshold.is_hard
        ]
    return Thresholds(tuple(found), tuple(faults))


T = TypeVar("T")
_Parse: TypeAlias = Callable[[str, str], T | None]


class _StatementError(ValueError):
    """A statement that the kubelet does not take; the message is the kubelet's own."""


def _read(
    name: str, statements: Mapping[str, str], parse: _Parse[T], faults: list[ConfigFault]
) -> dict[Signal, T]:
    """What the statements of a setting say, by signal; what cannot be read goes to the faults."""
    read: dict[Signal, T] = {}
    for signal, text in sorted(statements.items()):
        try:
            value = parse(_known(signal), text)
        except (_StatementError, NumberError, QuantityError, DurationError) as error:
            faults.append(
                ConfigFault(stage=Stage.STARTUP, text=str(error), path=f"{name}[{signal}]", value=text)
            )
            continue
        if value is not None:
            read[Signal(signal)] = value
    return read


def _known(signal: str) -> str:
    if signal not in _SIGNALS:
        raise _StatementError(f"unsupported eviction signal {signal}")
    return signal


def _threshold_value(signal: str, text: str) -> ThresholdValue | None:
    """The value; None: the threshold is switched off."""
    if not text.endswith("%"):
        quantity = Quantity.parse(text)
        if quantity.sign() <= 0:
            raise _StatementError(f"eviction threshold {signal} must be positive: {quantity}")
        return ThresholdValue(quantity, text=text)
    if text in ("0%", "100%"):
        return None
    fraction = _fraction(text)
    if fraction < 0:
        raise _StatementError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
    if fraction > 1:
        raise _StatementError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
    return ThresholdValue(fraction=fraction, text=text)


def _grace_period(signal: str, text: str) -> Duration:
    del signal
    period = Duration.parse(text)
    if period < NO_WAIT:
        raise _StatementError(f"invalid eviction grace period specified: {text}, must be a positive value")
    return period


def _minimum_reclaim(signal: str, text: str) -> ThresholdValue:
    if not text.endswith("%"):
        quantity = Quantity.parse(text)
        if quantity.sign() < 0:
            raise _StatementError(f"negative eviction minimum reclaim specified for {signal}")
        return ThresholdValue(quantity, text=text)
    fraction = _fraction(text)
    if fraction <= 0:
        raise _StatementError(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
    return ThresholdValue(fraction=fraction, text=text)


def _fraction(percentage: str) -> float:
    """The part of the whole, calculated in 32-bit floats; no negative zero."""
    return float32(parse_float32(percentage.rstrip("%")) / 100) + 0.0


def _no_period(signal: Signal) -> ConfigFault:
    return ConfigFault(
        stage=Stage.STARTUP,
        text=f"grace period must be specified for the soft eviction threshold {signal}",
        path=f"evictionSoftGracePeriod[{signal}]",
    )


_SIGNALS = frozenset(signal.value for signal in Signal)
