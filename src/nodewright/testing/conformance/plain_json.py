"""The vectors' notation of resource lists and predicate failures."""

from typing import Any

from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.reasons.predicates import InsufficientResource, PredicateFailure


def amount_texts(amounts: ResourceList) -> dict[str, str]:
    """The amounts as Kubernetes prints them."""
    return {name: str(amount) for name, amount in amounts.items()}


def plain_failure(failure: PredicateFailure) -> dict[str, Any]:
    """The shortage with its numbers, or the predicate with its description."""
    if isinstance(failure, InsufficientResource):
        return {
            "resource": failure.resource,
            "requested": failure.requested,
            "used": failure.used,
            "capacity": failure.capacity,
        }
    predicate, description = failure.failed_predicate()
    return {"predicate": predicate, "description": description}
