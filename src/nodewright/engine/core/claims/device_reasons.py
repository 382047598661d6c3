"""Why devices do not serve a request, in words: grouped, with the values that decided it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

import msgspec

from nodewright.engine.core.claims.allocation_values import (
    AllocationError,
    AllocationInput,
    AttributeConflict,
    CapacityShort,
    ConditionsOff,
    CounterShort,
    Holders,
    OtherNode,
    SelectorFailedError,
    SelectorUnmet,
    Untolerated,
)
from nodewright.engine.core.claims.cel import (
    DeviceName,
    SelectorDevice,
    SelectorError,
    compile_selector,
    device_names,
    explain_selector_error,
)
from nodewright.engine.core.claims.device_selectors import selector_device
from nodewright.engine.core.claims.device_verdicts import DeviceError, DeviceVerdict, PoolUnusable
from nodewright.engine.core.claims.searched_requests import Candidate
from nodewright.model.kubernetes.claims import DeviceTaint, ResourceClaim
from nodewright.model.kubernetes.device_attributes import Version
from nodewright.model.printable import counted
from nodewright.model.values.quantity import ZERO

MAX_NAMES = 4
"""Names in a sentence; of more it says how many."""
_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|&&|\|\||.', re.DOTALL)


_LISTED = ("held", "taken")
"""Kinds of reasons whose details are claims."""


class DeviceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of the node that cannot serve a request, for one reason."""

    kind: str
    """`held`, `class`, `selector`, `node`, `binding`, `capacity`, `counter`, `taint`, `attribute`, `pool`, `error`, `gate`."""
    count: int
    reason: str
    """What the devices are: `held by claim ml/train-3 of pod ml/train-3-0`."""
    devices: tuple[str, ...] = ()
    """The first ones, as `driver/pool/device`."""

    def __str__(self) -> str:
        return f"{counted(self.count, 'device')}: {self.reason}"


class _Reason(NamedTuple):
    kind: str
    text: str
    detail: str = ""
    """What differs among the devices of a group."""


def listed(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """The names in a sentence.

    >>> listed("ab"), listed("abcdef")
    ('a and b', 'a, b, c, d and 2 more')
    """
    items = list(names)
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def taint_text(taint: DeviceTaint) -> str:
    """The taint as it is written: `key=value:effect`."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def short_name(attribute: str) -> str:
    """The name of an attribute without its domain."""
    return attribute.rpartition("/")[2]


def holder_text(name: str, claims: Mapping[str, ResourceClaim], labels: Mapping[str, str] = {}) -> str:
    """The claim with the pods that use it; ``labels``: what it is called, unless by its name."""
    claim, namespace = claims.get(name), name.rpartition("/")[0]
    pods = [each.name for each in claim.status.reserved_for if each.resource == "pods"] if claim else []
    users = listed(f"{namespace}/{pod}" if namespace else pod for pod in pods)
    of_pods = f" of {'pod' if len(pods) == 1 else 'pods'} {users}" if pods else ""
    return f"{labels.get(name, f'claim {name}')}{of_pods}"


class DeviceReasons:
    """The words for verdicts about devices."""

    def __init__(
        self, asked: AllocationInput, claims: Mapping[str, ResourceClaim], labels: Mapping[str, str]
    ) -> None:
        self._asked, self._claims, self._labels = asked, claims, labels
        self._counter_holders: dict[tuple[str, str, str, str], str] = {}

    def groups(self, verdicts: Iterable[DeviceVerdict]) -> tuple[DeviceGroup, ...]:
        """The devices that would not do, first those that most have in common; those of other classes last."""
        verdicts = list(verdicts)
        of_class = [
            self.seen(each.candidate)
            for each in verdicts
            if not (isinstance(each.because, SelectorUnmet) and each.because.device_class)
        ]
        devices: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        details: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for verdict in verdicts:
            if verdict.is_suitable:
                continue
            reason = self._reason(verdict, of_class)
            devices[reason[:2]].append(verdict.candidate.name)
            details[reason[:2]][reason.detail] += 1
        ordered = sorted(devices, key=lambda key: (key[0] == "class", -len(devices[key]), key))
        return tuple(
            DeviceGroup(
                kind=kind,
                count=len(devices[kind, text]),
                reason=_detailed(kind, text, details[kind, text]),
                devices=tuple(devices[kind, text][:MAX_NAMES]),
            )
            for kind, text in ordered
        )

    def seen(self, candidate: Candidate) -> SelectorDevice:
        """What selectors see of the device."""
        return candidate.seen_by_selectors or selector_device(candidate.id[0], candidate.device)

    def holders(self, names: Sequence[str]) -> str:
        """The claims with the pods that use them."""
        return listed((*map(self.holder, names[:MAX_NAMES]), *names[MAX_NAMES:]))

    def label(self, name: str) -> str:
        """The claim in words."""
        return self._labels.get(name, f"claim {name}")

    def holder(self, name: str) -> str:
        """The claim with the pods that use it."""
        return holder_text(name, self._claims, self._labels)

    def _reason(self, verdict: DeviceVerdict, of_class: list[SelectorDevice]) -> _Reason:
        candidate, because = verdict.candidate, verdict.because
        match because:
            case Holders(claims=claims, by_this_search=True):
                return _Reason("taken", "taken for", listed(map(self.label, claims)))
            case Holders(claims=claims):
                return _Reason("held", "held by", self.holders(claims))
            case SelectorUnmet(expression=expression, device_class=device_class):
                part, values = self._unmet_part(expression, candidate)
                if device_class:
                    return _Reason("class", f"not of class `{device_class}`: `{part}` is false", values)
                return _Reason("selector", f"excluded by selector `{part}`", values)
            case OtherNode():
                return _Reason("node", "for other nodes")
            case ConditionsOff():
                gate = "DRADeviceBindingConditions"
                return _Reason("binding", f"in need of binding conditions, and feature gate `{gate}` is off")
            case CapacityShort():
                return self._capacity(because, candidate)
            case CounterShort():
                return self._counter(because, candidate)
            case Untolerated(taint=taint):
                return _Reason("taint", f"tainted `{taint_text(taint)}`, which the request does not tolerate")
            case AttributeConflict(attribute=attribute, value=None):
                meant = meant_name(attribute_name(attribute), of_class)
                text = f"without attribute `{short_name(attribute)}`, which a constraint compares"
                return _Reason("attribute", text, f"did you mean `{meant}`?" if meant else "")
            case AttributeConflict(attribute=attribute, value=value, others=others):
                text = f"excluded by the constraint on `{short_name(attribute)}`"
                return _Reason(
                    "attribute", text, f"{value} beside {listed(others)}" if others else f"{value}"
                )
            case PoolUnusable(pool=pool, reason=reason):
                return _Reason("pool", f"in pool {pool}, which is {reason}")
            case DeviceError(error=error):
                return _Reason("error", f"such that {self.error_text(error, candidate, of_class)}")
            case None:
                return _Reason("gate", "a partition, and feature gate `DRAPartitionableDevices` is off")

    def error_text(self, error: AllocationError, candidate: Candidate, devices: list[SelectorDevice]) -> str:
        """What is wrong, with the name that was probably meant; ``devices``: those that the selector is meant for."""
        if not isinstance(error, SelectorFailedError):
            return f"an error ends the search: {error}"
        own = self.seen(candidate)
        missing = missing_name(error, own)
        if missing is not None and any(value_of(missing, each) is not None for each in devices):
            explained = f"it has no {missing.kind} `{missing.name}`, as other devices have"
        else:
            explained = explain_selector_error(error.expression, error.error, devices if missing else [own])
        return f"selector `{error.expression}` fails: {explained}"

    def _unmet_part(self, expression: str, candidate: Candidate) -> tuple[str, str]:
        """The first part of a conjunction that is false, and the device's values of what it reads."""
        device = self.seen(candidate)
        part = next((each for each in conjuncts(expression) if not self.meets(each, device)), expression)
        return part, ", ".join(dict.fromkeys(_values(part, device)))

    def meets(self, expression: str, device: SelectorDevice) -> bool:
        """Whether the device meets the selector; not where it fails."""
        try:
            features = self._asked.rules.selector_features
            return compile_selector(expression, features=features).matches(device)
        except SelectorError:
            return False

    def _capacity(self, short: CapacityShort, candidate: Candidate) -> _Reason:
        if short.capacity is None:
            return _Reason("capacity", f"without capacity `{short.name}`")
        if short.against_policy:
            text = f"excluded by the policy of capacity `{short.name}`, which does not allow {short.consumed}"
            return _Reason("capacity", text)
        left = short.capacity - short.in_use
        holders = self._asked.in_use.shared.get(candidate.id, ())
        held = f", held by {self.holders(holders)}" if holders else ""
        text = f"{left} of {short.capacity} left" if short.in_use > ZERO else f"{short.capacity} there"
        return _Reason(
            "capacity", f"short of capacity `{short.name}`{held}", f"{short.consumed} asked, {text}"
        )

    def _counter(self, short: CounterShort, candidate: Candidate) -> _Reason:
        counters = candidate.pool.counter_sets.get(short.counter_set)
        total = counters and counters.counters.get(short.counter)
        left = short.available - short.consumed
        holders = self._holders_of_counter(candidate, short)
        of_total = f" of {total.value}" if total else ""
        needed = f"{short.needed} needed, " if short.needed > ZERO else ""
        amount = f"{needed}{left if left > ZERO else 'none'}{of_total} left"
        held = f", held by {holders}" if holders else ""
        text = f"short of counter `{short.counter}` of counter set `{short.counter_set}`{held}"
        return _Reason("counter", text, amount)

    def _holders_of_counter(self, candidate: Candidate, short: CounterShort) -> str:
        pool, in_use = candidate.pool, self._asked.in_use
        key = pool.driver, pool.name, short.counter_set, short.counter
        if key not in self._counter_holders:
            holders = {
                claim: None
                for piece in (*pool.slices, *pool.elsewhere)
                for device in piece.spec.devices
                if any(
                    used.counter_set == short.counter_set and short.counter in used.counters
                    for used in device.consumes_counters
                )
                for held in (in_use.exclusive, in_use.shared)
                for claim in held.get((pool.driver, pool.name, device.name), ())
            }
            self._counter_holders[key] = self.holders(tuple(holders))
        return self._counter_holders[key]


def _detailed(kind: str, text: str, details: Counter[str]) -> str:
    """The reason with the details, most frequent first."""
    most = [each for each in details.most_common() if each[0]]
    if not most:
        return text
    values = [each[0].partition(" is ") for each in most]
    names = {each[0] for each in values}
    is_value = len(names) == 1 and all(each[1] and "," not in each[2] for each in values)
    shows_number = len(most) > 1 and most[0][1] > 1
    texts = (
        f"{detail.partition(' is ')[2] if is_value else detail}{f' ({number})' if shows_number else ''}"
        for detail, number in most
    )
    joined = f"{f'{names.pop()} is ' if is_value else ''}{listed(texts) if is_value or kind in _LISTED else '; '.join(texts)}"
    return f"{text} {joined}" if kind in _LISTED else f"{text} ({joined})"


@lru_cache(maxsize=128)
def names_in(expression: str) -> tuple[DeviceName, ...]:
    """The names that the expression reads directly."""
    return tuple(device_names(expression))


@lru_cache(maxsize=128)
def conjuncts(expression: str) -> tuple[str, ...]:
    """The parts of a conjunction; the expression itself if it is none.

    >>> conjuncts('a == "x && y" && (b || c)')
    ('a == "x && y"', '(b || c)')
    """
    parts, depth = [""], 0
    for symbol in _TOKENS.findall(expression):
        depth += (symbol in "([{") - (symbol in ")]}")
        if depth == 0 and (symbol == "||" or parts[-1].endswith(" ?")):
            return (expression,)
        if depth == 0 and symbol == "&&":
            parts.append("")
        else:
            parts[-1] += symbol
    return tuple(each.strip() for each in parts)


def _values(expression: str, device: SelectorDevice) -> Iterator[str]:
    """What the device has of the names that the expression reads."""
    if "device.driver" in expression:
        yield f"driver is {device.driver}"
    for name in names_in(expression):
        value = value_of(name, device)
        yield f"no {name.kind} {name.name}" if value is None else f"{name.name} is {value_text(value)}"


def attribute_name(attribute: str) -> DeviceName:
    """The attribute of a constraint, as selectors name it."""
    domain, _, name = attribute.rpartition("/")
    return DeviceName("attribute", domain, name, 0)


def meant_name(missing: DeviceName, devices: Iterable[SelectorDevice]) -> str:
    """The name of one of the devices that is closest to one that none has; empty: none is close, or one has it."""
    names = {
        name.rpartition("/")[2]
        for device in devices
        for name in (device.capacity if missing.kind == "capacity" else device.attributes)
        if (name.rpartition("/")[0] or device.driver) == missing.domain
    }
    close = () if missing.name in names else get_close_matches(missing.name, sorted(names), n=1)
    return next(iter(close), "")


def missing_name(error: SelectorFailedError, device: SelectorDevice) -> DeviceName | None:
    """The name that the selector reads directly and the device does not have, if that is the error."""
    names = (each for each in names_in(error.expression) if error.error == f"no such key: {each.name}")
    return next((each for each in names if value_of(each, device) is None), None)


def value_of(name: DeviceName, device: SelectorDevice) -> object:
    """The device's value of the name; None: it has none."""
    values = device.capacity if name.kind == "capacity" else device.attributes
    value = values.get(f"{name.domain}/{name.name}")
    return values.get(name.name) if value is None and name.domain == device.driver else value


def value_text(value: object) -> str:
    """A value of an attribute or a capacity."""
    if isinstance(value, tuple):
        return listed(map(value_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return value.text if isinstance(value, Version) else str(value)
