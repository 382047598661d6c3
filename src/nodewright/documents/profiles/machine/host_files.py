"""Reads files of /sys and /proc, live or from a copy, and collects faults and missing facts."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from nodewright.documents.profiles.machine.host_facts import MachineFact, MissingFact
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.values.quantity import fits_int64

LARGEST_FILE_BYTES = 4 << 20  # /proc/cpuinfo of a machine with 1,000 CPUs is 1.5 MB
READ_CHUNK_BYTES = 64 << 10


class HostTree:
    """The files below a directory. In a confined tree, such as a copy, links do not lead out of it."""

    def __init__(self, root: Path, *, confined: bool = False) -> None:
        self.root = root
        self._real_root = os.path.realpath(root) if confined else None

    def full_path(self, path: str) -> str:
        """The full path of a file, for messages."""
        return str(self.root / path)

    def text(self, path: str) -> str | None:
        """The content of the file, without surrounding blanks; None if it does not exist.

        Errors: HostError if the system cannot read it.
        """
        place = self.root / path
        try:
            if not self._contains(place) or not stat.S_ISREG(place.stat().st_mode):
                return None
            # In archives of tar, files of sysfs are padded with zeros to a page.
            return _content(place).rstrip(b"\0").decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError("read", str(place), error.strerror or str(error)) from error

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted by their bytes; empty if there is no such directory."""
        try:
            return (
                tuple(sorted(child.name for child in (self.root / path).iterdir()))
                if self._contains(self.root / path)
                else ()
            )
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise HostError("list", self.full_path(path), error.strerror or str(error)) from error

    def _contains(self, path: Path) -> bool:
        if self._real_root is None:
            return True
        real_path = os.path.realpath(path)
        return real_path == self._real_root or real_path.startswith(self._real_root + os.sep)


def _content(path: Path) -> bytes:
    """The content of the file, read in small chunks: the kernel rejects large reads of /proc/sys."""
    with path.open("rb", buffering=0) as file:
        chunks, size = [], 0
        while size < LARGEST_FILE_BYTES and (chunk := file.read(READ_CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


class MachineSources:
    """The /sys and /proc of a machine; collects faults and missing facts."""

    def __init__(self, sys: HostTree, proc: HostTree) -> None:
        self.sys, self.proc = sys, proc
        self.faults: list[Fault] = []
        self.missing: list[MissingFact] = []

    def add_missing(self, fact: MachineFact, place: str = "", substitute: str = "") -> None:
        """Adds a missing fact, and the value used instead."""
        self.missing.append(MissingFact(fact=fact, place=place, substitute=substitute))

    def add_fault(self, place: str, value: object, rule: str) -> None:
        """Adds a fault of a file."""
        self.faults.append(Fault(source=place, value=value, rule=rule))

    def number(self, place: str, text: str, *, minimum: int = 0) -> int:
        """The number in the text; 0 and a fault if it is not one."""
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            number = int(text)
            if number >= minimum and fits_int64(number):
                return number
        self.add_fault(
            place, text, f"must be an integer of at least {minimum}" if text else "the file is empty"
        )
        return 0

    def finish(self) -> tuple[MissingFact, ...]:
        """The missing facts.

        Errors: InputError with every fault.
        """
        if self.faults:
            raise InputError(self.faults)
        return tuple(dict.fromkeys(self.missing))


def this_machine() -> MachineSources:
    """The files of this machine."""
    return MachineSources(HostTree(Path("/sys")), HostTree(Path("/proc")))


def copied_machine(directory: Path) -> MachineSources:
    """The files of a copy: a directory with `sys` and preferably `proc` in it, or a copy of /sys itself.

    Errors: InputError if it is neither.
    """
    candidates: Sequence[tuple[Path, Path]] = (
        (directory / "sys", directory / "proc"),
        (directory, directory / "proc"),
    )
    for sys, proc in candidates:
        if (sys / "devices" / "system").is_dir():
            return MachineSources(HostTree(sys, confined=True), HostTree(proc, confined=True))
    if (directory / "proc" / "cpuinfo").is_file():
        return MachineSources(
            HostTree(directory / "sys", confined=True), HostTree(directory / "proc", confined=True)
        )
    rule = "must be a directory with a copy of /sys (and /proc): sys/devices/system is missing"
    raise InputError([Fault(source=str(directory), rule=rule)])
