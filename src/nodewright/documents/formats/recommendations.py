"""VerticalPodAutoscalers: the resources that they recommend for the pods of their target, as resizes of these pods."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.values.quantity import Quantity

_OF_TEMPLATES = {"ReplicaSet", "Job", "ReplicationController"}
"""Kinds whose objects controllers make of others, with a suffix behind the other's name."""
_NOT_APPLIED = ("Off", "Initial")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an autoscaler, of which only the fields below count."""


class TargetReference(_Part, frozen=True, kw_only=True):
    """The object whose pods are meant."""

    kind: str = ""
    name: str = ""


class UpdatePolicy(_Part, frozen=True, kw_only=True):
    """When the autoscaler applies what it recommends."""

    update_mode: str = "Recreate"


class ContainerPolicy(_Part, frozen=True, kw_only=True):
    """What may be recommended for a container; `*` is each that has no own policy."""

    container_name: str = ""
    mode: str = "Auto"
    min_allowed: ResourceList = {}
    max_allowed: ResourceList = {}
    controlled_resources: tuple[str, ...] = (CPU, MEMORY)
    controlled_values: str = "RequestsAndLimits"


class ResourcePolicy(_Part, frozen=True, kw_only=True):
    """The policies of all containers."""

    container_policies: tuple[ContainerPolicy, ...] = ()


class RecommendationSpec(_Part, frozen=True, kw_only=True):
    """What is asked for."""

    target_ref: TargetReference = TargetReference()
    update_policy: UpdatePolicy = UpdatePolicy()
    resource_policy: ResourcePolicy = ResourcePolicy()


class ContainerRecommendation(_Part, frozen=True, kw_only=True):
    """The requests that are recommended for a container."""

    container_name: str = ""
    target: ResourceList = {}


class RecommendedResources(_Part, frozen=True, kw_only=True):
    """The recommendations of all containers."""

    container_recommendations: tuple[ContainerRecommendation, ...] = ()


class RecommendationStatus(_Part, frozen=True, kw_only=True):
    """What is recommended."""

    recommendation: RecommendedResources = RecommendedResources()


class Recommendation(_Part, frozen=True, kw_only=True):
    """A VerticalPodAutoscaler."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RecommendationSpec = RecommendationSpec()
    status: RecommendationStatus = RecommendationStatus()

    def notes(self, pods: Sequence[Pod]) -> Iterator[str]:
        """What of it is not applied: ``pods`` are those that it is for."""
        name = f"VerticalPodAutoscaler {self.metadata.namespace}/{self.metadata.name}"
        target = self.spec.target_ref
        if not self.status.recommendation.container_recommendations:
            yield f"{name} recommends nothing yet"
        elif not pods:
            yield f"{name}: no pod of the node is of {target.kind} {target.name}"
        elif self.spec.update_policy.update_mode in _NOT_APPLIED:
            mode = self.spec.update_policy.update_mode
            yield f"{name}: its mode is {mode}, so it resizes no running pod; this is what it would do"


def read_recommendation(value: dict[str, Any], namespace: str) -> Recommendation:
    """The autoscaler; ``namespace`` is its own if it names none.

    Errors: InputError for a field of a wrong type.
    """
    present = {name: value[name] for name in ("metadata", "spec", "status") if value.get(name) is not None}
    try:
        read = decode(present, Recommendation)
    except msgspec.ValidationError as error:
        raise InputError([decoding_fault(error)]) from None
    return replace(read, metadata=replace(read.metadata, namespace=read.metadata.namespace or namespace))


def recommended_resizes(recommendation: Recommendation, pods: Sequence[Pod]) -> list[Pod]:
    """The pods of its target, each with the recommended resources.

    Follows: vertical-pod-autoscaler 1.7, pkg/utils/vpa/capping.go, getCappedRecommendationForContainer;
        limit_and_request_scaling.go, GetProportionalLimit; policy.go, GetContainerResourcePolicy.
    Departs: limit ranges do not cap; pods belong to the target by their owner's name, without the selector of the
        target's scale.
    """
    meta, target = recommendation.metadata, recommendation.spec.target_ref
    own = [pod for pod in pods if pod.metadata.namespace == meta.namespace and _is_of(pod, target)]
    amounts = {
        each.container_name: each.target
        for each in recommendation.status.recommendation.container_recommendations
    }
    policies = {
        policy.container_name: policy for policy in recommendation.spec.resource_policy.container_policies
    }
    return [
        replace(
            pod,
            spec=replace(
                pod.spec,
                containers=tuple(_resized(each, amounts, policies) for each in pod.spec.containers),
                init_containers=tuple(
                    _resized(each, amounts, policies) if each.is_sidecar else each
                    for each in pod.spec.init_containers
                ),
            ),
        )
        for pod in own
    ]


def _is_of(pod: Pod, target: TargetReference) -> bool:
    return any(
        (owner.kind, owner.name) == (target.kind, target.name)
        or (
            owner.kind in _OF_TEMPLATES
            and target.kind != owner.kind
            and owner.name.rpartition("-")[0] == target.name
        )
        for owner in pod.metadata.owner_references
    )


def _resized(
    container: Container, amounts: dict[str, ResourceList], policies: dict[str, ContainerPolicy]
) -> Container:
    policy = policies.get(container.name) or policies.get("*") or ContainerPolicy()
    target = amounts.get(container.name)
    if target is None or policy.mode == "Off":
        return container
    requests, limits = dict(container.resources.requests), dict(container.resources.limits)
    for name, recommended in target.items():
        if name not in policy.controlled_resources:
            continue
        request, limit = requests.get(name), limits.get(name)
        amount = _capped(recommended, policy, name)
        if limit is not None and policy.controlled_values == "RequestsOnly":
            amount = min(amount, limit)
        elif limit is not None and not limit.is_zero():
            limits[name] = _proportional(limit, request, amount, name)
        requests[name] = amount
    return replace(container, resources=replace(container.resources, requests=requests, limits=limits))


def _capped(amount: Quantity, policy: ContainerPolicy, name: str) -> Quantity:
    least, most = policy.min_allowed.get(name), policy.max_allowed.get(name)
    amount = amount if least is None or least.is_zero() else max(amount, least)
    return amount if most is None or most.is_zero() else min(amount, most)


def _proportional(limit: Quantity, request: Quantity | None, amount: Quantity, name: str) -> Quantity:
    """The limit that is to the amount as it was to the request."""
    if request is None or request.is_zero() or request.milli_value() == limit.milli_value():
        return amount
    if name == CPU:
        return Quantity.of_milli(limit.milli_value() * amount.milli_value() // request.milli_value())
    return Quantity.of(limit.value() * amount.value() // request.value(), limit.format)
