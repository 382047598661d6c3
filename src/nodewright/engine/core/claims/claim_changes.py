"""The smallest changes with which the claims of a pod get devices on a node, found by trying changes."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.allocation_values import (
    MAX_DEVICES,
    AllocationError,
    CapacityShort,
    SearchGivenUp,
    SelectorFailedError,
    SelectorUnmet,
    Untolerated,
)
from nodewright.engine.core.claims.cel import SelectorDevice
from nodewright.engine.core.claims.claim_scheduling import (
    ClaimCluster,
    ClaimScheduling,
    StatusCode,
    named_claim,
)
from nodewright.engine.core.claims.device_pools import slices_of_node
from nodewright.engine.core.claims.device_reasons import (
    DeviceReasons,
    attribute_name,
    conjuncts,
    listed,
    meant_name,
    missing_name,
    names_in,
    taint_text,
    value_of,
    value_text,
)
from nodewright.engine.core.claims.device_verdicts import DeviceError, RequestVerdicts
from nodewright.engine.core.claims.searched_requests import RequestSpec
from nodewright.model.kubernetes.claims import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceCapacity,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimSpec,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError

MAX_TRIES = 200
MAX_WORK = 40_000
"""Of all tries: devices of the node, and devices that searches try; half a second."""
_MAX_EFFORT = 50_000
"""What the search of a try may cost."""
_MAX_SINGLE = 20
"""Claims that are tried one by one."""
_MAX_VALUES = 6
"""Other values of a selector, amounts of a capacity and classes that are tried."""
_GATES = (
    ("DRAPrioritizedList",),
    ("DRAAdminAccess",),
    ("DRAPartitionableDevices",),
    ("DRAConsumableCapacity",),
    ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    ("DRAListTypeAttributes",),
    ("DRAExtendedResource",),
)
_COMPARISON = re.compile(
    r'(\w+["\'\]]*(?:\s*(?:==|[<>]=?)\s*|\.(?:compareTo|isGreaterThan|isLessThan)\((?:quantity|semver)\())'
    r'("(?:[^"\\]|\\.)*"|-?\d+|true|false)'
)


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change with which the claims get their devices; it was tried."""

    kind: str
    """The kind of change, e.g. `count`; none of its kind is smaller."""
    text: str
    """What to do, as a sentence in the imperative."""
    specs: Mapping[str, ResourceClaimSpec] = {}
    """The specs of claims with the change, by `namespace/name`; of a claim without a name: by the beginning of its name."""
    released: tuple[str, ...] = ()
    """The claims whose devices are given back, by `namespace/name`."""
    gates: tuple[str, ...] = ()
    """The feature gates to turn on."""
    amounts: Mapping[str, ResourceList] = {}
    """What containers request of extended resources, by the container's name."""


_Place: TypeAlias = tuple[str, str]
"""A claim and a request of it."""
Edit: TypeAlias = Callable[[ResourceClaimSpec], ResourceClaimSpec]


class _Change(NamedTuple):
    """A change that can be put together with others."""

    kind: str
    text: str
    claim: str = ""
    request: str = ""
    """Empty: it may concern all requests of the claim, or of all claims."""
    edit: Edit | None = None
    released: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    amounts: Mapping[str, ResourceList] = {}
    is_tried: bool = False
    """It was found by trying."""


def changed_inputs(
    change: ClaimChange,
    pod: Pod,
    cluster: ClaimCluster,
    gates: FeatureGates,
    claims: tuple[ResourceClaim, ...] | None,
) -> tuple[Pod, ClaimCluster, FeatureGates, tuple[ResourceClaim, ...] | None]:
    """The pod, the cluster, the gates and the pod's claims with the change."""

    def changed(claim: ResourceClaim) -> ResourceClaim:
        name = named_claim(claim).name
        if name in change.released:
            return replace(claim, status=replace(claim.status, allocation=None, reserved_for=()))
        return replace(claim, spec=change.specs[name]) if name in change.specs else claim

    stored = tuple(map(changed, cluster.claims))
    own = None if claims is None else tuple(map(changed, claims))
    on = replace(gates, enabled=gates.enabled | set(change.gates))
    containers = tuple(_with_amounts(each, change.amounts.get(each.name)) for each in pod.spec.containers)
    changed_pod = replace(pod, spec=replace(pod.spec, containers=containers)) if change.amounts else pod
    return changed_pod, replace(cluster, claims=stored), on, own


def _with_amounts(container: Container, amounts: ResourceList | None) -> Container:
    """The container that requests, and is limited to, these amounts."""
    if amounts is None:
        return container
    own = container.resources
    limits = {name: amounts.get(name, amount) for name, amount in own.limits.items()}
    resources = replace(own, requests={**own.requests, **amounts}, limits=limits)
    return replace(container, resources=resources)


class ClaimTrials:
    """Tries changes of a pod's claims and of what the cluster has, within a budget."""

    def __init__(
        self,
        pod: Pod,
        cluster: ClaimCluster,
        node: APINode,
        gates: FeatureGates,
        claims: tuple[ResourceClaim, ...] | None,
        scheduling: ClaimScheduling,
    ) -> None:
        self._pod, self._node, self._gates, self._claims = pod, node, gates, claims
        self._cluster = _of_node(cluster, node, scheduling)
        self._scheduling = scheduling
        self._tries, self._work, self._devices = 0, 0, 0
        self._text = ""
        self._found: dict[str, ClaimChange] = {}
        self.is_cut = False
        """Whether changes were not tried to their end, because the budget was exhausted."""

    def changes(
        self, verdicts: Iterable[RequestVerdicts], reasons: DeviceReasons, text: str
    ) -> tuple[ClaimChange, ...]:
        """The smallest change of each kind that gives the claims devices; if there is none, a pair of changes.

        ``text`` is the sentence: of claims with as many devices, those come first that it names first.
        """
        verdicts, self._text = list(verdicts), text
        self._devices = max((len(each.verdicts) for each in verdicts), default=0)
        by_request: dict[_Place, list[RequestVerdicts]] = {}
        for each in verdicts:
            by_request.setdefault((each.claim_name, each.request.request_name), []).append(each)
        # Where a request has too few devices whatever others get, a change that does not concern it is of no use.
        short = [place for place, group in by_request.items() if all(each.is_short for each in group)]
        candidates = []
        for change in self._candidates(verdicts, reasons):
            candidates.append(change)
            if change.kind in self._found or not _concerns(short, change):
                continue
            if change.is_tried or self._gives_devices(change):
                self._found[change.kind] = self._joined(change)
        for pair in combinations(candidates, 2) if not self._found else ():
            if self._is_spent():
                break
            if _concerns(short, *pair) and self._gives_devices(*pair):
                return (self._joined(*pair),)
        return tuple(sorted(self._found.values(), key=lambda change: change.kind == "request"))

    def _gives_devices(self, *changes: _Change) -> bool:
        if self._is_spent():
            self.is_cut = True
            return False
        inputs = self._pod, self._cluster, self._gates, self._claims
        pod, cluster, gates, claims = changed_inputs(self._joined(*changes), *inputs)
        scheduling = ClaimScheduling(pod, cluster, gates, claims, max_effort=_MAX_EFFORT)
        status = scheduling.status(self._node)
        self._tries += 1
        self._work += self._devices + scheduling.steps
        self.is_cut |= isinstance(status.outcome, SearchGivenUp)
        return status.code is StatusCode.SUCCESS

    def _is_spent(self) -> bool:
        return self._tries >= MAX_TRIES or self._work >= MAX_WORK

    def _joined(self, *changes: _Change) -> ClaimChange:
        by_name = {each.name: each.spec for each in self._scheduling.claims}
        specs: dict[str, ResourceClaimSpec] = {}
        for change in changes:
            if change.edit is not None:
                specs[change.claim] = change.edit(specs.get(change.claim, by_name[change.claim]))
        texts = [each.text for each in changes]
        return ClaimChange(
            kind=" and ".join(dict.fromkeys(each.kind for each in changes)),
            text=f"{' and '.join((texts[0], *(f'{each[0].lower()}{each[1:]}' for each in texts[1:])))}.",
            specs=specs,
            released=tuple(name for each in changes for name in each.released),
            gates=tuple(gate for each in changes for gate in each.gates),
            amounts={name: amounts for each in changes for name, amounts in each.amounts.items()},
        )

    # ------------------------------------------------------------ what is tried, the smallest of a kind first

    def _candidates(self, verdicts: list[RequestVerdicts], reasons: DeviceReasons) -> Iterator[_Change]:
        by_place = {(each.claim_name, each.request.full_name): each for each in verdicts}
        for claim in self._scheduling.claims:
            if claim.status.allocation is not None:
                continue
            label = reasons.label(claim.name)
            for request in claim.spec.devices.requests:
                for alternative, spec in _specs(request):
                    name = f"{request.name}/{alternative}" if alternative else request.name
                    about = _Request(
                        claim.name, request.name, alternative, spec, f"request `{name}` of {label}"
                    )
                    own = by_place.get((claim.name, name))
                    if own is not None:
                        yield from about.counts(own)
                        yield from about.selectors(own, reasons)
                        yield from about.tolerations(own)
                        yield from about.capacities(own)
                    if own is None or own.is_short:
                        yield from about.classes(each.metadata.name for each in self._cluster.classes)
                if len(claim.spec.devices.requests) > 1:
                    text = f"Leave out request `{request.name}` of {label}"
                    edit = partial(_without, name=request.name)
                    yield _Change("request", text, claim.name, edit=edit)
            of_claim = [
                reasons.seen(each.candidate)
                for own in verdicts
                if own.claim_name == claim.name
                for each in own.of_class
            ]
            yield from _constraints(claim, label, of_claim)
        yield from self._extended_counts(verdicts)
        lacks = [each.needed - len(each.suitable) for each in verdicts if each.is_short]
        yield from self._releases(reasons, min(lacks, default=1))
        for gates in _GATES:
            if any(not self._gates[each] for each in gates):
                off = listed(f"`{each}`" for each in gates if not self._gates[each])
                yield _Change("gate", f"Turn on feature gate {off}", gates=gates)

    def _extended_counts(self, verdicts: list[RequestVerdicts]) -> Iterator[_Change]:
        """Fewer of an extended resource that a class serves, the most first."""
        lasting = {each.name for each in self._pod.spec.containers}
        for each in self._scheduling.extended.mappings:
            own = next((own for own in verdicts if own.request.full_name == each.request_name), None)
            if own is None or each.container_name not in lasting:
                continue
            resource, place = each.resource_name, (own.claim_name, each.request_name)
            for number in range(min(len(own.suitable), own.needed - 1), 0, -1):
                text = f"Request {number} `{resource}` instead of {own.needed} in container `{each.container_name}`"
                amounts = {each.container_name: {resource: Quantity.of(number)}}
                yield _Change("count", text, *place, amounts=amounts)

    def _releases(self, reasons: DeviceReasons, lack: int) -> Iterator[_Change]:
        """Of one claim that has as many devices as are lacking, the fewest first; then of as few claims as possible."""
        own = {each.name for each in self._scheduling.all_claims()}
        held = Counter(
            each.name
            for each in self._cluster.claims
            if each.status.allocation and each.name not in own
            for _ in each.status.allocation.devices.results
        )
        unavailable = [each.name for each in self._scheduling.unavailable_claims(self._node)]
        places = {name: self._text.find(reasons.holder(name)) % (1 << 32) for name in held}
        enough = sorted(
            (name for name in held if held[name] >= lack), key=lambda name: (held[name], places[name], name)
        )
        for name in (*unavailable, *enough[:_MAX_SINGLE]):
            yield _released([name], reasons)
        names = sorted(held, key=lambda name: (-held[name], name))
        if len(names) < 2 or "release" in self._found or not self._gives_devices(_released(names, reasons)):
            return
        many = 1
        while many < len(names) and not self._gives_devices(_released(names[:many], reasons)):
            many *= 2
        few, many = many // 2 + 1, min(many, len(names))
        while few < many:
            middle = (few + many) // 2
            is_enough = self._gives_devices(_released(names[:middle], reasons))
            few, many = (few, middle) if is_enough else (middle + 1, many)
        names = names[:many]
        for name in names[:_MAX_SINGLE]:
            fewer = [each for each in names if each != name]
            if fewer and self._gives_devices(_released(fewer, reasons)):
                names = fewer
        yield _released(names, reasons)._replace(is_tried=True)


def _concerns(short: list[_Place], *changes: _Change) -> bool:
    """Whether each of these requests is concerned by a change."""
    return all(
        any(each.claim in ("", place[0]) and each.request in ("", place[1]) for each in changes)
        for place in short
    )


def _released(names: list[str], reasons: DeviceReasons) -> _Change:
    return _Change("release", f"Release {reasons.holders(names)}", released=tuple(names))


def _of_node(cluster: ClaimCluster, node: APINode, scheduling: ClaimScheduling) -> ClaimCluster:
    """What of the cluster the allocator looks at for the node, so that a try costs the same in a large one."""
    question = scheduling.asked
    if question is None:
        return cluster
    try:
        relevant = slices_of_node(cluster.slices, node, question.rules)
        pools = {(each.spec.driver, each.spec.pool.name) for each in relevant}
    except AllocationError:
        return cluster
    own = {each.name for each in scheduling.all_claims()}
    claims = tuple(
        claim
        for claim in cluster.claims
        if claim.name in own
        or any(
            (each.driver, each.pool) in pools
            for each in (claim.status.allocation.devices.results if claim.status.allocation else ())
        )
    )
    slices = tuple(each for each in cluster.slices if (each.spec.driver, each.spec.pool.name) in pools)
    return replace(cluster, slices=slices, claims=claims)


def _without(spec: ResourceClaimSpec, name: str) -> ResourceClaimSpec:
    """The spec without the request, and without constraints on it alone."""
    devices = spec.devices
    constraints = []
    for constraint in devices.constraints:
        left = tuple(each for each in constraint.requests if each.partition("/")[0] != name)
        if left or not constraint.requests:
            constraints.append(replace(constraint, requests=left))
    requests = tuple(each for each in devices.requests if each.name != name)
    return replace(spec, devices=replace(devices, requests=requests, constraints=tuple(constraints)))


def _specs(request: DeviceRequest) -> Iterator[tuple[str, RequestSpec]]:
    for each in request.first_available:
        yield each.name, each
    if request.exactly is not None:
        yield "", request.exactly


def _constraints(claim: ResourceClaim, label: str, devices: Sequence[SelectorDevice]) -> Iterator[_Change]:
    """The name that was probably meant in a constraint, or without the constraint."""
    for constraint in claim.spec.devices.constraints:

        def edited(
            spec: ResourceClaimSpec, own: object, other: DeviceConstraint | None = None
        ) -> ResourceClaimSpec:
            constraints = (other if each is own else each for each in spec.devices.constraints)
            return replace(spec, devices=replace(spec.devices, constraints=tuple(filter(None, constraints))))

        field = "match_attribute" if constraint.match_attribute else "distinct_attribute"
        attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        named = attribute_name(attribute)
        name, place = f"`{named.name or 'nothing'}`", f"the constraint `{field.partition('_')[0]}Attribute`"
        if meant := meant_name(named, devices):
            other = replace(constraint, **{field: f"{attribute.removesuffix(named.name)}{meant}"})
            edit = partial(edited, own=constraint, other=other)
            text = f"Write `{meant}` instead of {name} in {place} of {label}"
            yield _Change("constraint name", text, claim.name, edit=edit)
        edit = partial(edited, own=constraint)
        yield _Change("constraint", f"Drop {place} on {name} of {label}", claim.name, edit=edit)


class _Request(NamedTuple):
    """A request or an alternative, whose changes are tried."""

    claim: str
    request: str
    alternative: str
    spec: RequestSpec
    place: str
    """The request in words."""

    def _change(self, kind: str, text: str, **fields: object) -> _Change:
        def edit(spec: ResourceClaimSpec) -> ResourceClaimSpec:
            requests = tuple(
                self._edited(each, fields) if each.name == self.request else each
                for each in spec.devices.requests
            )
            return replace(spec, devices=replace(spec.devices, requests=requests))

        return _Change(kind, f"{text} in {self.place}", self.claim, self.request, edit)

    def _edited(self, request: DeviceRequest, fields: Mapping[str, object]) -> DeviceRequest:
        if not self.alternative:
            return replace(request, exactly=request.exactly and replace(request.exactly, **fields))
        alternatives = tuple(
            replace(each, **fields) if each.name == self.alternative else each
            for each in request.first_available
        )
        return replace(request, first_available=alternatives)

    def counts(self, own: RequestVerdicts) -> Iterator[_Change]:
        """Fewer devices, the most first."""
        was = "all" if own.is_all else str(own.needed)
        for number in range(min(len(own.suitable), MAX_DEVICES, own.needed - (not own.is_all)), 0, -1):
            text = f"Ask for {number} {'device' if number == 1 else 'devices'} instead of {was}"
            yield self._change("count", text, count=number, allocation_mode="ExactCount")

    def selectors(self, own: RequestVerdicts, reasons: DeviceReasons) -> Iterator[_Change]:
        """Other values that devices have, then without a part of a selector, then without selectors."""
        unmet = [
            each.candidate
            for each in own.of_class
            if isinstance(each.because, SelectorUnmet) and not each.because.device_class
        ]
        expressions = [each.cel.expression for each in self.spec.selectors if each.cel]
        parts = [(at, part) for at, each in enumerate(expressions) for part in conjuncts(each)]
        for at, part in parts:
            others = Counter(new for each in unmet for new in _other_values(part, reasons.seen(each)))
            for _, new in sorted(others, key=lambda each: (each[0], -others[each], each[1]))[:_MAX_VALUES]:
                yield self._change(
                    "selector value",
                    f"Ask for `{new}` instead of `{part}`",
                    selectors=self._selectors(at, expressions[at].replace(part, new)),
                )
        failed = list(self._failing_selectors(own, reasons, expressions))
        yield from failed
        for at, part in parts if unmet or failed else ():
            left = " && ".join(each for each in conjuncts(expressions[at]) if each != part)
            yield self._change("selector", f"Drop selector `{part}`", selectors=self._selectors(at, left))
        if unmet and len(parts) > 1:
            yield self._change("selector", "Drop all selectors", selectors=())

    def _failing_selectors(
        self, own: RequestVerdicts, reasons: DeviceReasons, expressions: Sequence[str]
    ) -> Iterator[_Change]:
        """The name that was probably meant, and a guard against devices without it."""
        devices_of_class = [reasons.seen(each.candidate) for each in own.of_class]
        failures = [
            (each.because.error, reasons.seen(each.candidate))
            for each in own.verdicts
            if isinstance(each.because, DeviceError) and isinstance(each.because.error, SelectorFailedError)
        ]
        for at, error, missing in (
            (at, error, missing)
            for error, device in failures
            for at, each in enumerate(expressions)
            if each == error.expression and (missing := missing_name(error, device))
        ):
            holder = "capacity" if missing.kind == "capacity" else "attributes"
            if meant := meant_name(missing, devices_of_class):
                start = missing.column - 1
                renamed = f"{error.expression[:start]}{meant}{error.expression[start + len(missing.name) :]}"
                text = f"Write `{meant}` instead of `{missing.name}` in `{error.expression}`"
                yield self._change("selector name", text, selectors=self._selectors(at, renamed))
            guard = f'"{missing.name}" in device.{holder}["{missing.domain}"]'
            yield self._change(
                "selector guard",
                f"Put `{guard} &&` before `{error.expression}`",
                selectors=self._selectors(at, f"{guard} && ({error.expression})"),
            )

    def _selectors(self, at: int, expression: str) -> tuple[DeviceSelector, ...]:
        own = (DeviceSelector(cel=CELDeviceSelector(expression)),) if expression else ()
        return (*self.spec.selectors[:at], *own, *self.spec.selectors[at + 1 :])

    def tolerations(self, own: RequestVerdicts) -> Iterator[_Change]:
        """One taint, then all."""
        taints = {
            taint_text(each.because.taint): each.because.taint
            for each in own.of_class
            if isinstance(each.because, Untolerated)
        }
        for text, taint in taints.items():
            operator = "Equal" if taint.value else "Exists"
            toleration = DeviceToleration(taint.key, operator, taint.value, taint.effect)
            more = (*self.spec.tolerations, toleration)
            yield self._change("toleration", f"Tolerate taint `{text}`", tolerations=more)
        if taints:
            every = (*self.spec.tolerations, DeviceToleration(operator="Exists"))
            yield self._change("toleration", "Tolerate all taints", tolerations=every)

    def capacities(self, own: RequestVerdicts) -> Iterator[_Change]:
        """What is left of a capacity, the most first; or without one that devices do not have."""
        amounts = self.spec.capacity.requests if self.spec.capacity else {}
        shorts = [
            each.because
            for each in own.of_class
            if isinstance(each.because, CapacityShort) and not each.because.against_policy
        ]
        lefts = {
            (each.name, left)
            for each in shorts
            if each.capacity is not None and (left := each.capacity - each.in_use) > ZERO
        }
        allowed = {
            (each.because.name, amount)
            for each in own.of_class
            if isinstance(each.because, CapacityShort) and each.because.against_policy
            for amount in _allowed_amounts(each.candidate.device.capacity[each.because.name])
        }
        by_name = sorted(lefts | allowed, key=lambda item: item[0])
        for name, left in sorted(by_name, key=lambda item: item[1], reverse=True)[:_MAX_VALUES]:
            was = f"instead of {amounts[name]}" if name in amounts else "instead of the default"
            capacity = CapacityRequirements({**amounts, name: left})
            yield self._change("capacity", f"Ask for {left} of `{name}` {was}", capacity=capacity)
        for name in sorted({each.name for each in shorts if each.capacity is None}):
            capacity = CapacityRequirements({key: value for key, value in amounts.items() if key != name})
            yield self._change("capacity", f"Do not ask for capacity `{name}`", capacity=capacity)

    def classes(self, names: Iterable[str]) -> Iterator[_Change]:
        """Other classes, first those of a similar name."""
        own = self.spec.device_class_name
        others = [each for each in names if each != own]
        others.sort(key=lambda name: (-SequenceMatcher(None, own, name).ratio(), name))
        for name in others[:_MAX_VALUES]:
            text = f"Use device class `{name}` instead of `{own}`"
            yield self._change("class", text, device_class_name=name)


def _allowed_amounts(capacity: DeviceCapacity) -> Iterator[Quantity]:
    policy = capacity.request_policy or CapacityRequestPolicy()
    valid = policy.valid_range or CapacityRequestPolicyRange()
    yield from (each for each in (policy.default, valid.min, valid.max, *(policy.valid_values or ())) if each)


def _other_values(part: str, device: SelectorDevice) -> Iterator[tuple[Fraction, str]]:
    """A comparison with the value that the device has, and how far that is from the one that is asked for."""
    for name in names_in(part):
        comparison = _COMPARISON.match(part, name.column - 1)
        value = value_of(name, device)
        if comparison and value is not None and not isinstance(value, tuple):
            text, was = value_text(value), comparison[2].strip('"')
            distance = Fraction(0)
            if isinstance(value, Quantity) or (isinstance(value, int) and not isinstance(value, bool)):
                with suppress(QuantityError):
                    distance = abs((Quantity.parse(text) - Quantity.parse(was)).as_fraction())
            literal = msgspec.json.encode(text).decode() if comparison[2].startswith('"') else text
            yield distance, f"{part[: comparison.start(2)]}{literal}{part[comparison.end(2) :]}"
