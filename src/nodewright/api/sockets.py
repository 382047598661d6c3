"""Places for unix sockets."""

import os
import socket
from pathlib import Path

from nodewright.world.errors import WorldError

_LONGEST = 107


def clear_place(path: Path, option: str) -> None:
    """Its directory is there, and what an agent left behind that was killed is not.

    ``option`` is the one that names the place.
    Errors: WorldError where somebody listens there, the path is too long for a socket, or something else is there.
    """
    if len(os.fsencode(path)) > _LONGEST:
        raise WorldError("listen on", str(path), f"paths of sockets have at most {_LONGEST} bytes")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                return
    except OSError as error:
        raise WorldError("listen on", str(path), error.strerror or str(error)) from None
    raise WorldError("listen on", str(path), f"another agent listens there; {option} names another place")


def leave_place(path: Path) -> None:
    """Nothing is left there; not an error if there was nothing."""
    path.unlink(missing_ok=True)
