"""Files that are there whole or not at all, whatever happens while they are written."""

import os
from pathlib import Path

from nodewright.world.errors import WorldError


def write_atomically(place: Path, text: str, *, mode: int = 0o600, synced: bool = True) -> None:
    """The file has this text, on the disk, when this returns; cut off half-way, it has what it had.

    Not ``synced``, that holds as long as the machine stays up, and takes a hundredth of the time.

    Errors: WorldError.
    """
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            temporary.replace(place)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if synced:
            _sync_directory(place.parent)
    except OSError as error:
        raise WorldError("write", str(place), error.strerror or str(error)) from None


def _sync_directory(place: Path) -> None:
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
