"""Events that reach the API server: never too many about an object, counts as they occurred, nothing made up."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodewright.agent.member.event_writer import (
    SIMILAR_EVENTS,
    SPAM_BURST,
    SPAM_PERIOD_S,
    EventCorrelator,
    EventObject,
    ObjectEvent,
)

PODS = tuple(EventObject("Pod", "default", f"web-{number}", f"uid-{number}") for number in range(2))
EVENTS = st.builds(
    ObjectEvent,
    involved_object=st.sampled_from(PODS),
    is_warning=st.booleans(),
    reason=st.sampled_from(("BackOff", "Failed", "Started")),
    message=st.integers(0, 14).map(str),
)
STEPS = st.lists(st.tuples(st.integers(0, 400), EVENTS), max_size=120)


@given(STEPS)
def test_an_object_gets_its_burst_and_one_more_in_five_minutes(steps: list[tuple[int, ObjectEvent]]) -> None:
    correlator, now_s, written = EventCorrelator(), 10**9, Counter[tuple[EventObject, bool]]()
    for seconds, event in steps:
        now_s += seconds
        if correlator.correlate(event, now_s * 10**9) is not None:
            written[event.involved_object, event.is_warning] += 1
        bound = SPAM_BURST + (now_s - 10**9) // SPAM_PERIOD_S
        assert max(written.values(), default=0) <= bound


@given(STEPS)
def test_a_count_is_that_of_occurrences_while_few_events_are_similar(
    steps: list[tuple[int, ObjectEvent]],
) -> None:
    correlator, now_s, occurrences = EventCorrelator(), 10**9, Counter[ObjectEvent]()
    names: dict[ObjectEvent, str] = {}
    for seconds, event in steps:
        if int(event.message) >= SIMILAR_EVENTS - 1:
            continue
        now_s += seconds
        occurrences[event] += 1
        written = correlator.correlate(event, now_s * 10**9)
        if written is not None:
            assert written.event == event
            assert written.count == occurrences[event]
            assert names.setdefault(event, written.name) == written.name
            assert written.first_s <= written.last_s == now_s


@given(STEPS)
def test_a_message_is_the_events_own_or_says_that_it_is_combined(
    steps: list[tuple[int, ObjectEvent]],
) -> None:
    correlator, now_s = EventCorrelator(), 10**9
    for seconds, event in steps:
        now_s += seconds
        written = correlator.correlate(event, now_s * 10**9)
        if written is not None:
            combined = f"(combined from similar events): {event.message}"
            assert written.event.message in (event.message, combined)
            assert written.event.involved_object == event.involved_object
            assert written.event.reason == event.reason
