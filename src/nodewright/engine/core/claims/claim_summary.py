"""The sentence that says why the claims of a pod get no devices on a node."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, takewhile

from msgspec.structs import replace

from nodewright.engine.core.claims.alike_nodes import NODE_WORD
from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import (
    Allocated,
    AllocationError,
    AllocationFailed,
    AllocationInput,
    Attempt,
    NotAllocatable,
    Outcome,
    SearchGivenUp,
    SearchRecord,
)
from nodewright.engine.core.claims.claim_scheduling import (
    EXTENDED_CLAIM,
    ClaimScheduling,
    PluginStatus,
    StatusCode,
)
from nodewright.engine.core.claims.device_constraints import UNKNOWN, AttributeConstraint
from nodewright.engine.core.claims.device_pools import slices_of_node
from nodewright.engine.core.claims.device_reasons import (
    DeviceGroup,
    DeviceReasons,
    listed,
    short_name,
    taint_text,
)
from nodewright.engine.core.claims.device_selectors import selector_device
from nodewright.engine.core.claims.device_taints import taints_of, untolerated_taint
from nodewright.engine.core.claims.device_verdicts import (
    NOT_MATCHING,
    DeviceError,
    DeviceVerdict,
    NodeDevices,
    RequestVerdicts,
)
from nodewright.engine.core.claims.node_selection import selects_node
from nodewright.engine.core.claims.pod_claims import POD_CLAIM_ANNOTATION, PodClaimError, PodClaimState
from nodewright.engine.core.claims.searched_requests import Candidate
from nodewright.model.kubernetes.claims import DeviceConstraint, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.printable import counted

_MAX_ELSEWHERE = 200
"""Slices of other nodes that are searched for devices of a class."""
_REMEDIES = {
    PodClaimState.NOT_FOUND: "Claim {claim} of the pod does not exist.",
    PodClaimState.NOT_CREATED: "Claim `{entry}` of the pod is not created yet: the controller of claims does so from its "
    "template.",
    PodClaimState.DELETING: "Claim {claim} of the pod is being deleted.",
    PodClaimState.NOT_OWNED: "Claim {claim} was created for another pod; one from a template serves only its own.",
    PodClaimState.NO_SOURCE: "Entry `{entry}` of the pod's claims names neither a claim nor a template.",
}
_DEFECTS = {
    "counters_leak": "what a device consumes of counters stays consumed in the search although a taint or a constraint "
    "refuses the device",
    "counters_by_name": "counters are looked up by the name of the pool alone, and pools of two drivers have the same name",
}
"""What of Kubernetes keeps claims from their devices though there are enough, by rule of the allocator."""
_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_NO_CLASS = re.compile("request (.*): device class (.*) does not exist")
_UNMET_BY_ALL = re.compile("claim (.*), request (.*): cannot add device (.*) because .*")
_FILTER_TEXTS = {
    "cannot schedule extended resource claim": "The claim for the pod's extended resources exists already; the scheduler "
    "places the pod after that claim is deleted.",
    "cannot fit resource": "Node {node} has no `{resource}`: its allocatable does not list it, and no device class serves it.",
}


class ClaimSummary:
    """What the scheduler answered about a pod's claims on a node, in one sentence; and what that is built on."""

    def __init__(
        self,
        node: APINode,
        scheduling: ClaimScheduling,
        status: PluginStatus,
        record: SearchRecord,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """``words``: what to write for the names of claims that hold devices, and of the node; None: the names."""
        self._pod, self._cluster = scheduling.pod, scheduling.cluster
        self._node_name = node.metadata.name if words is None else NODE_WORD
        self._scheduling, self._status, self._record = scheduling, status, record
        self._asked = scheduling.asked or AllocationInput(node=node, claims=(), rules=scheduling.rules)
        self.labels = {**(words or {}), **dict(self._labels())}
        claims = self._cluster.claims_by_full_name if words is None else {}
        self.reasons = DeviceReasons(self._asked, claims, self.labels)
        self.verdicts: tuple[RequestVerdicts, ...] = ()
        try:
            self._devices = NodeDevices(self._asked)
            self.verdicts = tuple(self._devices.verdicts())
        except AllocationError:
            # The node selector of a slice does not parse, which is the scheduler's answer.
            self._devices = NodeDevices(replace(self._asked, slices=()))

    def _labels(self) -> Iterator[tuple[str, str]]:
        templates = {
            each.get("name"): each.get("resourceClaimTemplateName") for each in self._pod.spec.resource_claims
        }
        for claim in self._scheduling.all_claims():
            meta = claim.metadata
            entry = meta.annotations.get(POD_CLAIM_ANNOTATION, "")
            if meta.name == EXTENDED_CLAIM:
                yield claim.name, "the claim for the pod's extended resources"
            elif meta.generate_name == meta.name and entry:
                yield claim.name, f"claim `{entry}` (from template {templates.get(entry)})"
            else:
                yield claim.name, f"claim {claim.name}"

    def wanted(self, verdicts: RequestVerdicts) -> str:
        """What the request asks for."""
        spec = verdicts.request.spec
        number = "all devices" if verdicts.is_all else counted(spec.count, "device")
        amounts = spec.capacity.requests if spec.capacity else {}
        capacity = listed(f"{amount} of `{name}`" for name, amount in amounts.items())
        access = " for admin access" if verdicts.request.is_admin else ""
        return (
            f"{number} of class `{spec.device_class_name}`{f' with {capacity}' if capacity else ''}{access}"
        )

    def _subject(self, verdicts: RequestVerdicts) -> str:
        """The request in words."""
        name = verdicts.request.full_name
        served = [each for each in self._scheduling.extended.mappings if each.request_name == name]
        if served and verdicts.claim_name.endswith(EXTENDED_CLAIM):
            containers = listed(f"`{each.container_name}`" for each in served)
            return f"the request for `{served[0].resource_name}` of container {containers}"
        return f"request `{name}` of {self.reasons.label(verdicts.claim_name)}"

    def text(self) -> str:
        """The sentence."""
        status = self._status
        match status.outcome:
            case _ if status.code is StatusCode.SKIP:
                return "The pod has no resource claims that need devices."
            case _ if status.code is StatusCode.SUCCESS:
                return self._success()
            case AllocationFailed(error=error):
                return self._failure(error)
            case NotAllocatable():
                return self._short() or self._together()
            case SearchGivenUp(steps=steps):
                given_up = f"The search was given up after {counted(steps, 'attempt')}"
                short = self._short()
                return f"{short} {given_up}." if short else f"{given_up}, so the answer may be wrong."
            case Allocated() | None:
                return self._without_search()

    # ------------------------------------------------------------ answers without a search

    def _success(self) -> str:
        parts = [
            f"{self.labels.get(f'{self._pod.metadata.namespace}/{name}', f'claim {name}')} gets "
            f"{listed(each.device for each in allocation.devices.results) or 'no devices'}"
            for name, allocation in self._status.allocations.items()
        ]
        text = listed(parts) or "the pod's claims are allocated already, and can be used"
        return " ".join((f"{_capital(text)} on node {self._node_name}.", *self._evictions()))

    def _evictions(self) -> Iterator[str]:
        """The taints of allocated devices for which pods are evicted; the scheduler does not look at them."""
        results = {
            (each.driver, each.pool, each.device): (claim.name, each.tolerations)
            for claim in self._scheduling.claims
            for each in (claim.status.allocation.devices.results if claim.status.allocation else ())
        }
        rules = self._cluster.taint_rules if self._asked.rules.taint_rules else ()
        for item in self._cluster.slices if results and self._asked.rules.taints else ():
            for device in item.spec.devices:
                place = item.spec.driver, item.spec.pool.name, device.name
                claim, tolerations = results.get(place, ("", ()))
                taints = [each for each in taints_of(device, place, rules) if each.effect == "NoExecute"]
                taint = untolerated_taint(taints, tolerations, known_effects=True) if claim else None
                if taint is not None:
                    named = f"device {'/'.join(place)} of {self.reasons.label(claim)}"
                    yield f"{_capital(named)} is tainted `{taint_text(taint)}`, for which the pod is evicted."

    def _without_search(self) -> str:
        """Why the scheduler did not come to a search, or why its result does not help."""
        message = self._status.message
        if message == "resourceclaim not available on the node":
            return f"{listed(self._elsewhere())}."
        try:
            self._scheduling.own_claims()
        except PodClaimError as error:
            entry = error.pod_claim.name
            named = next(
                (
                    each.resource_claim_name
                    for each in self._pod.status.resource_claim_statuses
                    if each.name == entry
                ),
                entry,
            )
            source = next(each for each in self._pod.spec.resource_claims if each.get("name", "") == entry)
            claim = f"{self._pod.metadata.namespace}/{source.get('resourceClaimName') or named}"
            return _REMEDIES[error.pod_claim.state].format(entry=entry, claim=claim)
        if missing := _NO_CLASS.fullmatch(message):
            names = listed(sorted(each.metadata.name for each in self._cluster.classes))
            there = f"there are {names}" if names else "there are none"
            return f"Device class `{missing[2]}` of request `{missing[1]}` does not exist; {there}."
        text = _FILTER_TEXTS.get(message, "The scheduler leaves the pod aside on all nodes: {message}.")
        return text.format(node=self._node_name, message=message, resource=self._scheduling.unfit_resource)

    def _elsewhere(self) -> Iterator[str]:
        """The claims that are allocated to devices of other nodes, or whose devices cannot be bound."""
        for claim in self._scheduling.unavailable_claims(self._asked.node):
            allocation = claim.status.allocation
            selector = allocation.node_selector if allocation else None
            names = [
                value
                for term in (selector.node_selector_terms if selector else ())
                for field in (*term.match_fields, *term.match_expressions)
                for value in field.values
            ]
            there = f"devices of {listed(names)}" if names else "other devices"
            reason = f"which node {self._node_name} cannot use"
            if selector is None or selects_node(selector, self._asked.node):
                there, reason = "devices", "of which one failed to be bound"
            yield f"{_capital(self.reasons.holder(claim.name))} is allocated already, to {there}, {reason}"

    def _failure(self, error: str) -> str:
        """The allocator's error."""
        for verdicts in self.verdicts:
            subject = self._subject(verdicts)
            for verdict in verdicts.verdicts:
                because = verdict.because
                if isinstance(because, DeviceError) and str(because.error) == error:
                    devices = [self.reasons.seen(each.candidate) for each in verdicts.of_class]
                    text = self.reasons.error_text(because.error, verdict.candidate, devices)
                    device = f"For {subject} and device {verdict.candidate.name}"
                    return f"{device}, {text}; that ends scheduling of the pod on all nodes."
            if str(verdicts.problem) == error and "currently" in error:
                pool = next(each for each in self._devices.pools if not each.is_usable)
                states = {each.pool: each.reason for each in self._devices.unusable_pools}
                reason = states.get(str(pool), f"invalid: {pool.invalid}")
                return f"{_capital(subject)} asks for all devices, and pool {pool} is {reason}."
            unmet = _UNMET_BY_ALL.fullmatch(error)
            if unmet and unmet[1] == verdicts.claim_name and unmet[2] == verdicts.request.name:
                constraints = self._asked.claims[verdicts.claim].spec.devices.constraints
                names = {
                    short_name(each.match_attribute or each.distinct_attribute or "") for each in constraints
                }
                return (
                    f"{_capital(subject)} asks for all devices, and device {unmet[3]} does not meet the constraint on "
                    f"{listed(f'`{each}`' for each in sorted(names))} beside the others; that ends scheduling of the pod on "
                    "all nodes."
                )
        invalid = next((pool for pool in self._devices.pools if pool.invalid), None)
        if invalid is not None and error.startswith("invalid resource pools"):
            return f"Pool {invalid} on node {self._node_name} is invalid ({invalid.invalid}), so that no device of it is allocated."
        return f"The allocator ends with an error, on all nodes: {error}."

    # ------------------------------------------------------------ too few devices for a request

    def _short(self) -> str:
        """The first request for which there are too few devices, whatever the others get; empty: there is none."""
        for _, group in groupby(self.verdicts, key=lambda each: (each.claim, each.request.request_name)):
            alternatives = list(group)
            if all(each.is_short for each in alternatives):
                first = alternatives[0]
                if len(alternatives) == 1:
                    return f"{_capital(self._subject(first))} needs {self._lack(first)}."
                lacks = "; ".join(f"`{each.request.name}` needs {self._lack(each)}" for each in alternatives)
                subject = f"Request `{first.request.request_name}` of {self.reasons.label(first.claim_name)}"
                return f"{subject} has no alternative that would do: {lacks}."
        return ""

    def _lack(self, verdicts: RequestVerdicts) -> str:
        """What the request needs, and what there is."""
        wanted, of_class = self.wanted(verdicts), verdicts.of_class
        on_node = f"on node {self._node_name}"
        if not of_class:
            return f"{wanted}, and {self._nowhere(verdicts)}"
        suitable, total = len(verdicts.suitable), len(of_class)
        if verdicts.is_all and verdicts.needed:
            of_class = [each for each in of_class if each.outcome not in NOT_MATCHING]
            if verdicts.needed > 1:
                return (
                    f"{wanted}, and of the {verdicts.needed} that match {on_node}, {self._reasons(of_class)}"
                )
        if suitable == total:
            return f"{wanted}, and node {self._node_name} has only {total}"
        groups = self.reasons.groups(of_class)
        if len(of_class) == 1:
            return f"{wanted}, and the only one {on_node} is {groups[0].reason}"
        of_total = f"{suitable or 'none'} of {total}"
        return f"{wanted}, and {of_total} {on_node} would do: {'; '.join(map(_predicate, groups))}"

    def _reasons(self, verdicts: Iterable[DeviceVerdict]) -> str:
        return "; ".join(map(_predicate, self.reasons.groups(verdicts)))

    def _nowhere(self, verdicts: RequestVerdicts) -> str:
        """Where devices of the class are, if the node has none."""
        name, selectors = self._node_name, verdicts.request.device_class.spec.selectors
        expressions = [each.cel.expression for each in selectors if each.cel]

        def is_of_class(item: ResourceSlice) -> bool:
            seen = [selector_device(item.spec.driver, device) for device in item.spec.devices[:1]]
            return any(all(self.reasons.meets(each, device) for each in expressions) for device in seen)

        pools = {(each.driver, each.name) for each in self._devices.pools}
        for item in slices_of_node(self._asked.slices, self._asked.node, self._asked.rules):
            spec = item.spec
            if (spec.driver, spec.pool.name) not in pools and is_of_class(item):
                pool = f"pool {spec.driver}/{spec.pool.name} on node {name}"
                return f"{pool} is outdated: other nodes have slices of a newer generation"
        elsewhere = (each for each in self._asked.slices if each.spec.node_name != name)
        of_class = filter(is_of_class, islice(elsewhere, _MAX_ELSEWHERE))
        nodes = dict.fromkeys(each.spec.node_name or "other nodes" for each in of_class)
        if nodes:
            return f"node {name} has none: devices of this class are on {listed(nodes)}"
        if not verdicts.verdicts:
            return f"no ResourceSlice has devices for node {name}: no driver publishes any for it"
        drivers = {each.spec.driver for each in self._asked.slices}
        for driver in _DRIVER.findall(" ".join(expressions)):
            if driver not in drivers:
                return f"driver {driver} publishes no ResourceSlice in this cluster"
        return f"no device on node {name} is one: {self._reasons(verdicts.verdicts)}"

    # ------------------------------------------------------------ enough for each request, too few together

    def _together(self) -> str:
        """Why requests that have enough devices by themselves do not have them together."""
        for rule, defect in _DEFECTS.items():
            exact = replace(
                self._asked, rules=replace(self._asked.rules, **{rule: False}), max_effort=200_000
            )
            if isinstance(allocate(exact).outcome, Allocated):
                return f"There are enough devices on node {self._node_name}, but a defect of Kubernetes hides them: {defect}."
        conflicts = (
            self._conflict(index, constraint)
            for index, claim in enumerate(self._asked.claims)
            for constraint in claim.spec.devices.constraints
        )
        return next(filter(None, conflicts), "") or self._contention() or self._deepest()

    def _conflict(self, claim: int, constraint: DeviceConstraint) -> str:
        """Why the constraint alone cannot be met; empty: it can, or that is not known."""
        compared = AttributeConstraint(constraint, self._asked.rules)
        plain = [each for each in self.verdicts if each.claim == claim]
        chosen = [
            each
            for each in plain
            if compared.applies_to(each.request.request_name, each.request.alternative_name)
        ]
        if (
            not chosen
            or any(each.request.alternative_name for each in chosen)
            or self._asked.rules.list_attributes
        ):
            return ""

        def value(candidate: Candidate) -> str | None:
            is_known = compared.value_of(candidate.device, candidate.id) != UNKNOWN
            return compared.conflict(candidate.device, candidate.id).value if is_known else None

        def pair(verdict: DeviceVerdict) -> tuple[str, str | None]:
            return verdict.candidate.name, value(verdict.candidate)

        free = [Counter(filter(None, map(value, each.suitable))) for each in chosen]
        name = f"`{short_name(compared.attribute)}`"
        if not compared.is_match:
            values = sorted(set().union(*free))
            if len(values) >= len(chosen):
                return ""
            return (
                f"The devices of {self._requests(chosen)} must differ in {name}, and those that are free have only "
                f"{listed(values)}."
            )
        if any(
            all(have[value] >= each.needed for each, have in zip(chosen, free, strict=True))
            for value in free[0]
        ):
            return ""
        return self._no_common_value(name, chosen, [dict(map(pair, each.of_class)) for each in chosen], free)

    def _no_common_value(
        self,
        name: str,
        chosen: Sequence[RequestVerdicts],
        values_of: Sequence[Mapping[str, str | None]],
        free: Sequence[Counter[str]],
    ) -> str:
        """Which values of the attribute the requests could have; ``values_of``: by device, for each request."""
        first = min(range(len(chosen)), key=lambda at: len(free[at]))
        anchor, values = chosen[first], sorted(free[first])
        subject = self._subject(anchor)
        if len(chosen) == 1:
            return f"{_capital(subject)} needs {counted(anchor.needed, 'device')} with the same {name}, and there are {_counts(free[0])}."
        at = next((at for at, have in enumerate(free) if at != first and not set(have) & set(values)), None)
        if at is None:
            needs = "; ".join(
                f"`{each.request.name}` needs {each.needed} and has {_counts(have)}"
                for each, have in zip(chosen, free, strict=True)
            )
            return f"No value of {name}, which must be the same for {self._requests(chosen)}, has enough devices: {needs}."
        other = chosen[at]
        there = [
            each
            for each in other.of_class
            if not each.is_suitable and values_of[at][each.candidate.name] in values
        ]
        blocked = f"there {self._reasons(there)}" if there else f"its devices are {_counts(free[at])}"
        total, number = len(anchor.of_class), len(anchor.suitable)
        both = {1: "", 2: "both "}.get(number, "all ")
        return (
            f"{number} of {counted(total, 'device')} for {subject} would do, {both}with {name} {listed(values)}; "
            f"request `{other.request.name}` needs {counted(other.needed, 'device')} with the same, and {blocked}."
        )

    def _requests(self, chosen: Sequence[RequestVerdicts]) -> str:
        names = listed(f"`{each.request.name}`" for each in chosen)
        return f"{'request' if len(chosen) == 1 else 'requests'} {names} of {self.reasons.label(chosen[0].claim_name)}"

    def _contention(self) -> str:
        """Requests that need more devices than suit any of them."""
        plain = [
            each for each in self.verdicts if not each.request.alternative_name and not each.request.is_admin
        ]
        for widest in plain:
            names = {each.name for each in widest.suitable}
            if any(each.device.allow_multiple_allocations for each in widest.suitable):
                continue
            inside = [each for each in plain if {own.name for own in each.suitable} <= names]
            needed = sum(each.needed for each in inside)
            if needed > len(names):
                requests = " and ".join(
                    f"{listed(f'`{each.request.name}`' for each in group)} of {self.reasons.label(name)}"
                    for name, group in groupby(inside, key=lambda each: each.claim_name)
                )
                others = self._reasons(widest.of_class)
                why = f": {others}" if others else ""
                return f"Requests {requests} need {counted(needed, 'device')} together, and {len(names)} of {len(widest.of_class)} on node {self._node_name} would do{why}."
        return ""

    def _deepest(self) -> str:
        """Where the search came farthest, and why it did not come farther."""
        attempts = [each for each in self._record if isinstance(each, Attempt)]
        farthest = max(((each.claim, each.request, each.device) for each in attempts), default=None)
        if farthest is None:
            return "The claims cannot be allocated together."
        claim, request, number = farthest
        by_name = {each.candidate.name: each.candidate for group in self.verdicts for each in group.verdicts}
        # Of attempts that came as far, the first has the most devices to choose from.
        entries = iter(self._record)
        for entry in entries:
            if isinstance(entry, Attempt) and (entry.claim, entry.request, entry.device) == farthest:
                break
        verdicts = [
            DeviceVerdict(by_name[entry.device], entry.outcome, entry.because)
            for entry in takewhile(lambda entry: not isinstance(entry, Attempt), entries)
            if not isinstance(entry, Attempt)
            and entry.outcome not in (Outcome.TAKEN, Outcome.GIVEN_BACK)
            and entry.device in by_name
        ]
        own = self._asked.claims[claim]
        groups = "; ".join(_predicate(each) for each in self.reasons.groups(verdicts) if each.kind != "class")
        groups = groups or "the capacity that is left beside other requests is too little"
        name = own.spec.devices.requests[request].name
        about = next(
            each for each in self.verdicts if (each.claim, each.request.request_name) == (claim, name)
        )
        subject = f"request `{name}` of {self.labels[own.name]}"
        if not about.request.alternative_name:
            subject = self._subject(about)
        finds = f"only {number}" if number else "none"
        text = f"{subject} finds {finds} of the devices that it needs on node {self._node_name}: {groups}."
        if len(self.verdicts) == 1:
            return _capital(text)
        return (
            f"Each request of the pod has enough devices by itself, but not together with the others: {text}"
        )


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _predicate(group: DeviceGroup) -> str:
    return f"{group.count} {'is' if group.count == 1 else 'are'} {group.reason}"


def _counts(values: Counter[str]) -> str:
    """How many there are of each value."""
    return listed(f"{number} with {value}" for value, number in sorted(values.items())) or "none"
