"""How vectors write what the predicates found."""

from typing import Any

from nodewright.model.reasons import InsufficientResource, PredicateFailure
from nodewright.render.messages import predicate


def plain_failure(failure: PredicateFailure) -> dict[str, Any]:
    """The shortage with its numbers, or the predicate with its description."""
    if isinstance(failure, InsufficientResource):
        return {
            "resource": failure.resource,
            "requested": failure.requested,
            "used": failure.used,
            "capacity": failure.capacity,
        }
    named = predicate(failure)
    return {"predicate": named.predicate, "description": named.description}
