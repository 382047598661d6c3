from nodewright.engine.admission.limit_ranger import FilledIn, limit_ranger_annotation
from nodewright.model.reasons.api_server import (
    LimitReason,
    NoRatio,
    RequestOrLimit,
    Subject,
    limit_range_error,
)
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import amounts


def no_ratio(resource: str) -> LimitReason:
    return NoRatio(
        subject=Subject(type="Pod"),
        resource=resource,
        enforced=Quantity.parse("2"),
        figure=RequestOrLimit.LIMIT,
    )


def test_all_violations_are_one_error_without_repetitions() -> None:
    why = "max limit to request ratio per Pod is 2, but no limit is specified or limit is 0"
    assert limit_range_error([no_ratio("cpu"), no_ratio("cpu")]) == f"cpu {why}"
    assert limit_range_error([no_ratio("cpu"), no_ratio("memory")]) == f"[cpu {why}, memory {why}]"


def test_the_annotation_names_the_defaults_and_their_containers() -> None:
    app = FilledIn(container="app", init=False, requests=amounts("memory=1 cpu=1"), limits=amounts("cpu=1"))
    setup = FilledIn(container="setup", init=True, requests={}, limits=amounts("memory=1"))
    assert limit_ranger_annotation((app, setup)) == (
        "LimitRanger plugin set: cpu, memory request for container app; cpu limit for container app; "
        "memory limit for init container setup"
    )
    assert limit_ranger_annotation(()) == ""
