"""What a shim reads and writes beside the log. Imports only builtin parts of the standard library, as the shim does."""

import os
from _stat import S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MESSAGE_LIMIT_BYTES = 4096
_FIRST_INHERITED = 3


def close_inherited_descriptors() -> None:
    """Closes all descriptors but the standard streams: those of the process that started the agent are not for containers.

    Follows: opencontainers/runc v1.2, libcontainer/init_linux.go, finalizeNamespace.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _FIRST_INHERITED:
            try:
                os.close(int(name))
            except OSError:
                # The descriptor of the list itself.
                continue


def termination_message(path: str) -> str:
    """The container's termination message; empty where the container has put anything but a file there.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, getTerminationMessage.
    Departs: a link, device, FIFO or socket is not read: it could lead anywhere, and be waited for without end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _MESSAGE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def oom_kills(files: "Iterable[str]") -> int:
    """How many processes of the cgroup the OOM killer has killed; the files are those that may exist."""
    for path in files:
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if words and words[0] == "oom_kill":
                        return int(words[1])
        except OSError:
            continue
    return 0


def write_record(name: str, document: "Mapping[str, object]", *, synced: bool = True) -> None:
    """Writes a record into the working directory, completely or not at all.

    Errors: OSError.
    """
    from _json import encode_basestring_ascii as quoted  # noqa: PLC0415 - json would import re

    pairs = (
        f"{quoted(key)}: {quoted(value) if isinstance(value, str) else value}"
        for key, value in document.items()
    )
    temporary = f".{name}.tmp"
    with open(temporary, "w", encoding="ascii") as file:
        file.write("{" + ", ".join(pairs) + "}")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    os.rename(temporary, name)


def try_write_record(name: str, document: "Mapping[str, object]") -> bool:
    """Writes a record; whether it is written."""
    try:
        write_record(name, document)
    except OSError:
        return False
    return True
