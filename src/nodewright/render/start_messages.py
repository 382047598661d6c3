"""What keeps a kubelet from starting, whatever its state files say: in its own words, and in plain ones."""

from typing import assert_never

from nodewright.model.start_reasons import ConfigurationRefused, ReservedBeyondCapacity, StartReason
from nodewright.render.allocatable import over_reservation, over_reservation_sentence


def start_message(reason: StartReason) -> str:
    """The kubelet's error."""
    match reason:
        case ConfigurationRefused(error=error):
            return error
        case ReservedBeyondCapacity(over=over):
            return over_reservation(over)
        case _:
            assert_never(reason)


def start_sentence(reason: StartReason) -> str:
    """The reason in plain words, without a full stop."""
    match reason:
        case ConfigurationRefused(path=path, error=error):
            return f"{path}: {error}" if path else error
        case ReservedBeyondCapacity(over=over):
            return "; ".join(map(over_reservation_sentence, over))
        case _:
            assert_never(reason)
