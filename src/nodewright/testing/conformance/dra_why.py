"""Family dra-why: how the search for devices goes where there is no allocation, candidate by candidate."""

from collections.abc import Mapping
from typing import Any

from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import Attempt, SearchRecord
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.dra_allocate import allocation_input


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The attempts of the search, and what became of each candidate."""
    record: SearchRecord = []
    allocate(allocation_input(question, release), record)
    return {
        "trace": [
            ["try", each.claim, each.request, each.alternative, each.device]
            if isinstance(each, Attempt)
            else [each.device, each.outcome.value]
            for each in record
        ]
    }
