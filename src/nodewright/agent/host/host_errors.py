"""Failures of the operating system as HostError, with the operation and the place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodewright.model.errors import HostError


@contextmanager
def host_errors(operation: str, place: Path | str) -> Iterator[None]:
    """Turns OSError into HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(operation, str(place), error.strerror or str(error)) from None


def run_host_operation(operation: str, path: Path, act: Callable[[], object]) -> None:
    """Runs an operation on the host's files.

    Errors: HostError.
    """
    with host_errors(operation, path):
        act()
