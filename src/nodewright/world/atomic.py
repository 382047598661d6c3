"""Files that are there whole or not at all, whatever happens while they are written."""

import os
from pathlib import Path

from nodewright.world.errors import WorldError


def write_atomically(place: Path, content: bytes, *, mode: int = 0o600, synced: bool = True) -> None:
    """The file has this content, on the disk, when this returns; cut off half-way, it has what it had.

    Not ``synced``, that holds as long as the machine stays up, and takes a hundredth of the time.

    Errors: WorldError.
    """
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            temporary.replace(place)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if synced:
            sync(place.parent)
    except OSError as error:
        raise WorldError("write", str(place), error.strerror or str(error)) from None


def sync(place: Path) -> None:
    """What a file or a directory holds is on the disk.

    Errors: OSError.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
