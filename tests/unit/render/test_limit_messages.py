from nodewright.core.limits import FilledIn
from nodewright.model.limit_reasons import Figure, LimitReason, NoRatio, Subject
from nodewright.render.limit_messages import annotation, limits_message
from nodewright.testing.objects import amounts
from nodewright.values.quantity import Quantity


def no_ratio(resource: str) -> LimitReason:
    return NoRatio(
        subject=Subject(type="Pod"), resource=resource, enforced=Quantity.parse("2"), figure=Figure.LIMIT
    )


def test_all_that_is_wrong_is_one_text_in_which_each_thing_is_said_once() -> None:
    why = "max limit to request ratio per Pod is 2, but no limit is specified or limit is 0"
    assert limits_message([no_ratio("cpu"), no_ratio("cpu")]) == f"cpu {why}"
    assert limits_message([no_ratio("cpu"), no_ratio("memory")]) == f"[cpu {why}, memory {why}]"


def test_the_annotation_names_what_was_given_to_whom() -> None:
    app = FilledIn(container="app", init=False, requests=amounts("memory=1 cpu=1"), limits=amounts("cpu=1"))
    setup = FilledIn(container="setup", init=True, requests={}, limits=amounts("memory=1"))
    assert annotation((app, setup)) == (
        "LimitRanger plugin set: cpu, memory request for container app; cpu limit for container app; "
        "memory limit for init container setup"
    )
    assert annotation(()) == ""
