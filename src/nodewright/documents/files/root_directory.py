"""The agent's root directory: no other user can replace it, and other users pass through it without listing it.

Pods' files that other users need are below `volumes` and `containers`; an access control list admits to a pod's volumes
exactly the users that its containers run as.
"""

import contextlib
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from nodewright.model.errors import HostError

PASS_THROUGH, CLOSED = 0o711, 0o750
SUBDIRECTORIES = {"volumes": PASS_THROUGH, "containers": PASS_THROUGH, "logs": CLOSED}
"""The mode of each directory; all others are created with mode 0700."""

_ACCESS_LIST = "system.posix_acl_access"
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_EXECUTE, _READ_EXECUTE, _ALL = 1, 5, 7
_NO_ID, _OTHERS = 0xFFFFFFFF, 0o007
_MAX_LINKS = 40


def prepare_root_directory(path: Path) -> None:
    """Creates the root directory if needed, and gives it and the directories in it their modes.

    Follows: v1.36, kubelet/kubelet.go, setupDataDirs: mode 0750.
    Departs: mode 0711: containers that are plain processes of other users reach their own files. A directory that
        another user can replace is refused, as sshd does (StrictModes).
    Errors:  HostError.
    """
    require_trusted(path)
    try:
        path.mkdir(PASS_THROUGH, parents=True, exist_ok=True)
        require_trusted(path)
        path.chmod(PASS_THROUGH)
        for name, mode in SUBDIRECTORIES.items():
            (path / name).mkdir(mode, exist_ok=True)
            (path / name).chmod(mode)
        for pod_directory in (path / "volumes").iterdir():
            # Earlier agents left them open, below a closed root directory.
            if stat.S_IMODE(pod_directory.stat().st_mode) & _OTHERS:
                pod_directory.chmod(CLOSED)
    except OSError as error:
        raise HostError("prepare", str(path), error.strerror or str(error)) from None


def require_trusted(path: Path) -> None:
    """Checks that only root and this process's own user can replace the directory or anything on the way to it.

    Errors: HostError.
    """
    pending, place, links = list(reversed(path.absolute().parts[1:])), Path("/"), 0
    while pending:
        _require_safe_parent(path, place)
        name = pending.pop()
        if name == "..":
            place = place.parent
            continue
        try:
            status = (place / name).lstat()
        except FileNotFoundError:
            # It is created there, by the agent.
            return
        except OSError as error:
            raise HostError("use", str(path), error.strerror or str(error)) from None
        if status.st_uid not in (0, os.geteuid()):
            raise HostError("use", str(path), f"{place / name} belongs to user {status.st_uid}")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise HostError("use", str(path), "too many links")
            target = (place / name).readlink()
            pending += [part for part in reversed(target.parts) if part != "/"]
            place = Path("/") if target.is_absolute() else place
        else:
            place /= name
    if place.exists() and _writers(place.stat()):
        raise HostError("use", str(path), f"{_writers(place.stat())} can write to it")


def admit_users(path: Path, users: Iterable[int]) -> None:
    """Lets these users pass through the directory, besides its owner and group; others may not.

    Follows: Linux, acl(5); include/uapi/linux/posix_acl_xattr.h.
    Errors:  OSError, where the file system has no access control lists.
    """
    admitted = sorted({*users} - {os.geteuid()})
    if not admitted:
        with contextlib.suppress(OSError):
            os.removexattr(path, _ACCESS_LIST)
        path.chmod(CLOSED)
        return
    entries = [
        (_OWNER, _ALL, _NO_ID),
        *((_USER, _EXECUTE, user) for user in admitted),
        (_GROUP, _READ_EXECUTE, _NO_ID),
        (_MASK, _READ_EXECUTE, _NO_ID),
        (_OTHER, 0, _NO_ID),
    ]
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, _ACCESS_LIST, content)


def _require_safe_parent(path: Path, parent: Path) -> None:
    """Checks that no other user can rename what is in the directory: in a sticky one only its owner can."""
    status = parent.stat()
    writers = "" if status.st_mode & stat.S_ISVTX else _writers(status)
    if writers:
        raise HostError("use", str(path), f"{writers} can replace what is in {parent}")


def _writers(status: os.stat_result) -> str:
    """The users besides the owner that can write to a directory; empty: only root and the agent's own group."""
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
        return f"group {status.st_gid}"
    return ""
