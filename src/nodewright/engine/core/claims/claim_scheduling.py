"""What the scheduler's plugin DynamicResources says about a pod: at all, and for one node."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import (
    Allocated,
    AllocationFailed,
    AllocationInput,
    AllocationOutcome,
    DevicesInUse,
    SearchRecord,
    devices_in_use,
)
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.claims.extended_resources import (
    IMPLICIT_PREFIX,
    ExtendedRequests,
    classes_of_resources,
    extended_requests,
)
from nodewright.engine.core.claims.node_selection import NodeSelectorError, selects_node
from nodewright.engine.core.claims.pod_claims import PodClaimError, claims_of_pod, controller_of
from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates

EXTENDED_CLAIM = "<extended-resources>"
"""The name of the claim for extended resources until it is created."""
EXTENDED_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class StatusCode(StrEnum):
    """Codes of the scheduling framework."""

    SUCCESS = "Success"
    SKIP = "Skip"
    """The plugin has nothing to do."""
    ERROR = "Error"
    """Scheduling of the pod is aborted."""
    UNSCHEDULABLE = "UnschedulableAndUnresolvable"


T = TypeVar("T", ResourceClaim, ResourceClaimTemplate)
ByName: TypeAlias = dict[tuple[str, str], T]
"""By namespace and name."""


class ClaimCluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a cluster has of Dynamic Resource Allocation."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    taint_rules: tuple[DeviceTaintRule, ...] = ()
    is_whole: bool = True
    """Whether it has no other objects; else what is not here may exist."""

    def __post_init__(self) -> None:
        if not isinstance(self.slices, IndexedSlices):
            force_setattr(self, "slices", IndexedSlices(self.slices))

    @cached_property
    def claims_by_full_name(self) -> Mapping[str, ResourceClaim]:
        """The claims by `namespace/name`."""
        return {each.name: each for each in self.claims}

    @cached_property
    def claims_by_name(self) -> ByName[ResourceClaim]:
        """The claims."""
        return {(each.metadata.namespace, each.metadata.name): each for each in self.claims}

    @cached_property
    def claims_by_controller(self) -> Mapping[str, list[ResourceClaim]]:
        """The claims that have a controller, by its uid, in order of their names."""
        claims: dict[str, list[ResourceClaim]] = {}
        owned = ((uid, claim) for claim in self.claims if (uid := controller_of(claim)) is not None)
        for uid, claim in sorted(owned, key=lambda each: each[1].name):
            claims.setdefault(uid, []).append(claim)
        return claims

    @cached_property
    def templates_by_name(self) -> ByName[ResourceClaimTemplate]:
        """The templates."""
        return {(each.metadata.namespace, each.metadata.name): each for each in self.templates}

    @cached_property
    def _in_use(self) -> dict[AllocatorRules, DevicesInUse]:
        return {}

    def in_use(self, rules: AllocatorRules) -> DevicesInUse:
        """What is allocated to the claims."""
        if rules not in self._in_use:
            self._in_use[rules] = devices_in_use(self.claims, rules)
        return self._in_use[rules]


class PluginStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin answers."""

    code: StatusCode
    message: str = ""
    for_all_nodes: bool = False
    """PreFilter ended with it; else it is the node's."""
    allocations: Mapping[str, AllocationResult] = {}
    """By name of the claim: those that are allocated on this node."""
    extended: ExtendedRequests | None = None
    outcome: AllocationOutcome | None = None
    """What the allocator answered, if it was asked."""


class ClaimScheduling:
    """The plugin for one pod.

    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, PreFilter, Filter;
        extendeddynamicresources.go.
    Departs: no allocation is pending, nothing times out, and PodGroups have no claims.
    """

    def __init__(
        self,
        pod: Pod,
        cluster: ClaimCluster,
        gates: FeatureGates = DEFAULT_GATES,
        claims: tuple[ResourceClaim, ...] | None = None,
        *,
        max_effort: int | None = None,
    ) -> None:
        """``claims``: the pod's claims as they will be once those of templates are created; None: as they are found.

        One that has no name yet is called by the beginning of its name. ``max_effort``: what a search may cost.
        """
        self._max_effort = max_effort
        self.asked: AllocationInput | None = None
        """What the allocator was asked by the latest `status`, if it was."""
        self.extended = ExtendedRequests()
        """The requests for extended resources, if there were any."""
        self.unfit_resource = ""
        """The extended resource that neither the node offers nor a class."""
        self.steps = 0
        """How many devices its search tried, approximately."""
        self.pod, self.cluster = pod, cluster
        self.given = None if claims is None else tuple(map(named_claim, claims))
        """The pod's claims, unless they are to be found."""
        self.rules = AllocatorRules.of(gates)
        self._classes = {each.metadata.name: each for each in cluster.classes}
        self._served = classes_of_resources(cluster.classes) if gates["DRAExtendedResource"] else {}
        requests = pod_requests(pod) if self._served else {}
        self._extended = {
            name: amount.value()
            for name, amount in requests.items()
            if amount.value() and (is_extended(name) or name.startswith(IMPLICIT_PREFIX))
        }
        self.claims: tuple[ResourceClaim, ...] = ()
        """The pod's claims, after `status`."""
        self.extended_claim: ResourceClaim | None = None

    def status(self, node: APINode, record: SearchRecord | None = None) -> PluginStatus:
        """The plugin's answer for the node, or for all nodes."""
        try:
            self.claims = self.own_claims()
        except PodClaimError as error:
            return _unschedulable(str(error), for_all_nodes=True)
        if any(name in self._served for name in self._extended):
            self.extended_claim = self._earlier_claim() or ResourceClaim(
                metadata=ObjectMeta(name=EXTENDED_CLAIM, namespace=self.pod.metadata.namespace)
            )
        elif not self.claims:
            return PluginStatus(code=StatusCode.SKIP, for_all_nodes=True)
        for claim in self.all_claims():
            if problem := self._claim_problem(claim):
                return problem
        return self._filter(node, record)

    def own_claims(self) -> tuple[ResourceClaim, ...]:
        """The pod's claims, without the one for extended resources.

        Errors: PodClaimError.
        """
        if self.given is not None:
            return self.given
        return claims_of_pod(self.pod, self.cluster.claims_by_name)

    def all_claims(self) -> tuple[ResourceClaim, ...]:
        """The claims of the pod, and the one for extended resources."""
        return self.claims if self.extended_claim is None else (*self.claims, self.extended_claim)

    def _earlier_claim(self) -> ResourceClaim | None:
        """The claim for extended resources of an earlier attempt."""
        meta = self.pod.metadata
        for claim in self.cluster.claims:
            if claim.metadata.annotations.get(EXTENDED_ANNOTATION) == "true" and any(
                owner.name == meta.name and owner.controller and owner.uid == meta.uid
                for owner in claim.metadata.owner_references
            ):
                return claim
        return None

    def _claim_problem(self, claim: ResourceClaim) -> PluginStatus | None:
        """Why the claim keeps the pod from all nodes."""
        allocation = claim.status.allocation
        if allocation is not None:
            try:
                if allocation.node_selector is not None:
                    selects_node(allocation.node_selector, APINode())
            except NodeSelectorError as error:
                text = str(error).partition("}: ")[2]
                return PluginStatus(code=StatusCode.ERROR, message=text, for_all_nodes=True)
            return None
        for request in claim.spec.devices.requests if claim is not self.extended_claim else ():
            where = f"resource claim {claim.name}, request {request.name}"
            if request.exactly is not None:
                names = [(request.name, request.exactly.device_class_name)]
            elif not request.first_available:
                return _unschedulable(f"{where}: unknown request type", for_all_nodes=True)
            elif not self.rules.prioritized_list:
                text = "has subrequests, but the DRAPrioritizedList feature is disabled"
                return _unschedulable(f"{where}: {text}", for_all_nodes=True)
            else:
                names = [
                    (f"{request.name}/{each.name}", each.device_class_name)
                    for each in request.first_available
                ]
            for name, device_class in names:
                if not device_class:
                    text = f"request {name}: unsupported request type"
                    return PluginStatus(code=StatusCode.ERROR, message=text, for_all_nodes=True)
                if device_class not in self._classes:
                    text = f"request {name}: device class {device_class} does not exist"
                    return _unschedulable(text, for_all_nodes=True)
        return None

    def _filter(self, node: APINode, record: SearchRecord | None) -> PluginStatus:
        by_devices: list[str] = []
        special = self.extended_claim
        if special is not None:
            if special.spec.devices.requests:
                return _unschedulable("cannot schedule extended resource claim")
            for name in self._extended:
                allocatable = node.status.allocatable.get(name)
                if name in self._served and (allocatable is None or not allocatable.value()):
                    by_devices.append(name)
                elif allocatable is None:
                    self.unfit_resource = name
                    return _unschedulable("cannot fit resource")
        if not self.claims and not by_devices:
            return PluginStatus(code=StatusCode.SUCCESS)
        extended: ExtendedRequests | None = None
        claims = [claim for claim in self.claims if claim.status.allocation is None]
        if special is not None and special.status.allocation is None:
            extended = self.extended = extended_requests(self.pod, by_devices, self._served)
            devices = replace(special.spec.devices, requests=extended.requests)
            claims.append(replace(special, spec=replace(special.spec, devices=devices)))
        return self._allocated(node, claims, extended, record)

    def _allocated(
        self,
        node: APINode,
        claims: list[ResourceClaim],
        extended: ExtendedRequests | None,
        record: SearchRecord | None,
    ) -> PluginStatus:
        outcome: AllocationOutcome = Allocated(())
        if claims:
            self.asked = AllocationInput(
                node=node,
                claims=tuple(claims),
                slices=self.cluster.slices,
                classes=self._classes,
                in_use=self.cluster.in_use(self.rules),
                taint_rules=self.cluster.taint_rules,
                rules=self.rules,
                max_effort=self._max_effort,
            )
            answer = allocate(self.asked, record)
            outcome, self.steps = answer.outcome, answer.steps
        if isinstance(outcome, AllocationFailed):
            code = StatusCode.UNSCHEDULABLE if outcome.only_this_node else StatusCode.ERROR
            return PluginStatus(code=code, message=outcome.error, outcome=outcome)
        if not isinstance(outcome, Allocated):
            return replace(_unschedulable("cannot allocate all claims"), outcome=outcome)
        if self.unavailable_claims(node):
            return replace(_unschedulable("resourceclaim not available on the node"), outcome=outcome)
        names = [claim.metadata.name for claim in claims]
        return PluginStatus(
            code=StatusCode.SUCCESS,
            allocations=dict(zip(names, outcome.allocations, strict=True)),
            extended=extended,
            outcome=outcome,
        )

    def unavailable_claims(self, node: APINode) -> tuple[ResourceClaim, ...]:
        """The allocated claims of the pod that cannot be used on the node."""
        return tuple(claim for claim in self.all_claims() if not self._is_available(claim, node))

    def _is_available(self, claim: ResourceClaim, node: APINode) -> bool:
        """Whether an allocated claim can be used on the node, and no device has failed to be bound."""
        allocation = claim.status.allocation
        if allocation is None:
            return True
        if allocation.node_selector is not None and not selects_node(allocation.node_selector, node):
            return False
        return not self.rules.binding or not _has_failed(claim, allocation.devices.results)


def named_claim(claim: ResourceClaim) -> ResourceClaim:
    """The claim; one without a name is called by the beginning of its name."""
    meta = claim.metadata
    return claim if meta.name else replace(claim, metadata=replace(meta, name=meta.generate_name))


def _has_failed(claim: ResourceClaim, results: tuple[DeviceRequestAllocationResult, ...]) -> bool:
    """Whether a condition says that a device cannot be bound; it ends at the first device that is not ready.

    Follows: v1.36, dynamicresources.go, isClaimReadyForBinding.
    """
    for result in results:
        if not result.binding_conditions:
            continue
        true = {
            condition.type
            for status in claim.status.devices
            if (status.driver, status.pool, status.device, status.share_id)
            == (result.driver, result.pool, result.device, result.share_id)
            for condition in status.conditions
            if condition.status == "True"
        }
        if true.intersection(result.binding_failure_conditions):
            return True
        if not true.issuperset(result.binding_conditions):
            return False
    return False


def _unschedulable(message: str, *, for_all_nodes: bool = False) -> PluginStatus:
    return PluginStatus(code=StatusCode.UNSCHEDULABLE, message=message, for_all_nodes=for_all_nodes)
