"""What a scenario's `observe` may not say, though its fields and types are right."""

from collections.abc import Iterator, Sequence

from nodewright.model.scenario import ScenarioEvent
from nodewright.model.usage_table import Look
from nodewright.values.duration import Duration, DurationError
from nodewright.world.errors import Fault
from nodewright.world.summary import table_faults

_WAYS = ("summary", "usage", "failed", "conditions")


def look_faults(events: Sequence[ScenarioEvent]) -> Iterator[Fault]:
    """Looks that say nothing or two things, clocks that go backwards."""
    last, before = Duration(), ""
    for index, event in enumerate(events):
        if event.observe is None:
            continue
        path = f"spec.events[{index}].observe"
        yield from _faults(event.observe, path)
        if event.observe.at is None:
            last = Duration(last.nanoseconds + 10 * 10**9) if before else last
        else:
            try:
                at = Duration.parse(event.observe.at)
            except DurationError as error:
                yield Fault(path=f"{path}.at", value=event.observe.at, rule=str(error))
                continue
            if at < last:
                rule = f"clocks do not go backwards: {before or 'the beginning'} was at {last}"
                yield Fault(path=f"{path}.at", value=event.observe.at, rule=rule)
            last = max(at, last)
        before = f"spec.events[{index}]"


def _faults(look: Look, path: str) -> Iterator[Fault]:
    said = [name for name in _WAYS if getattr(look, name) not in (None, False)]
    if not said:
        yield Fault(path=path, rule=f"one of {', '.join(_WAYS)} is wanted")
    elif len(said) > 1:
        yield Fault(path=path, rule=f"is one thing, not {' and '.join(said)}")
    if look.usage is not None:
        yield from table_faults(look.usage, f"{path}.usage")
