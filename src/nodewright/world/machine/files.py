"""Files of /sys and /proc, live or from a copy, with everything that is wrong with them gathered."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from nodewright.values.units import fits_int64
from nodewright.world.errors import Fault, InputError, WorldError
from nodewright.world.machine.lacks import Fact, Lack

LARGEST_FILE_BYTES = 4 << 20  # /proc/cpuinfo of a machine with 1,000 CPUs is 1.5 MB
PIECE_BYTES = 64 << 10


class Tree:
    """The files below a directory. A copy is confined: its links cannot lead out of it."""

    def __init__(self, root: Path, *, confined: bool = False) -> None:
        self.root = root
        self._inside = os.path.realpath(root) if confined else None

    def place(self, path: str) -> str:
        """The whole path of a file, to name it in messages."""
        return str(self.root / path)

    def text(self, path: str) -> str | None:
        """What the file says, without blanks around it; None where there is no such file.

        Errors: WorldError where the system refuses to read it.
        """
        place = self.root / path
        try:
            if not self._holds(place) or not stat.S_ISREG(place.stat().st_mode):
                return None
            # tar fills files of sysfs with zeros up to the page that they claim to be.
            return _bytes(place).rstrip(b"\0").decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise WorldError("read", str(place), error.strerror or str(error)) from error

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a directory in the order of their bytes; none where there is no such directory."""
        try:
            return (
                tuple(sorted(one.name for one in (self.root / path).iterdir()))
                if self._holds(self.root / path)
                else ()
            )
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise WorldError("list", self.place(path), error.strerror or str(error)) from error

    def _holds(self, place: Path) -> bool:
        if self._inside is None:
            return True
        real = os.path.realpath(place)
        return real == self._inside or real.startswith(self._inside + os.sep)


def _bytes(place: Path) -> bytes:
    """What the file holds, read in small pieces: the kernel refuses large reads of /proc/sys."""
    with place.open("rb", buffering=0) as file:
        pieces, size = [], 0
        while size < LARGEST_FILE_BYTES and (piece := file.read(PIECE_BYTES)):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)


class Sources:
    """Where a machine is read from; gathers what is wrong (faults) and what is missing (lacks)."""

    def __init__(self, sys: Tree, proc: Tree) -> None:
        self.sys, self.proc = sys, proc
        self.faults: list[Fault] = []
        self.lacks: list[Lack] = []

    def lack(self, fact: Fact, place: str = "", instead: str = "") -> None:
        """Note that the fact is not to be had."""
        self.lacks.append(Lack(fact=fact, place=place, instead=instead))

    def fault(self, place: str, value: object, rule: str) -> None:
        """Note that a file says what it must not."""
        self.faults.append(Fault(source=place, value=value, rule=rule))

    def number(self, place: str, text: str, *, least: int = 0) -> int:
        """The number that the text is; 0 and a fault where it is none."""
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            number = int(text)
            if number >= least and fits_int64(number):
                return number
        self.fault(
            place, text, f"must be a whole number of at least {least}" if text else "the file is empty"
        )
        return 0

    def end(self) -> tuple[Lack, ...]:
        """What was missing.

        Errors: InputError with every fault.
        """
        if self.faults:
            raise InputError(self.faults)
        return tuple(dict.fromkeys(self.lacks))


def this_machine() -> Sources:
    """The files of the machine that we run on."""
    return Sources(Tree(Path("/sys")), Tree(Path("/proc")))


def copied(directory: Path) -> Sources:
    """The files of a copy: a directory with `sys` and, better, `proc` in it, or a copy of /sys itself.

    Errors: InputError where it is neither.
    """
    candidates: Sequence[tuple[Path, Path]] = (
        (directory / "sys", directory / "proc"),
        (directory, directory / "proc"),
    )
    for sys, proc in candidates:
        if (sys / "devices" / "system").is_dir():
            return Sources(Tree(sys, confined=True), Tree(proc, confined=True))
    if (directory / "proc" / "cpuinfo").is_file():
        return Sources(Tree(directory / "sys", confined=True), Tree(directory / "proc", confined=True))
    rule = "must be a directory that holds a copy of /sys (and /proc): sys/devices/system is not there"
    raise InputError([Fault(source=str(directory), rule=rule)])
