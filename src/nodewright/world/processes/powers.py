"""Takes capabilities from the calling process for good. For shims, and only where a container asks for it."""

import ctypes
import os

_BOUNDS_DROP, _GAINS_NOTHING, _AMBIENT, _AMBIENT_CLEARED = 24, 38, 47, 4
_VERSION_3 = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def gain_nothing() -> None:
    """No program that it runs gives it more than it has.

    Errors: OSError.
    """
    _asked(_GAINS_NOTHING, 1)


def keep(numbers: set[int]) -> None:
    """It has at most these capabilities, and so has all that it runs.

    Errors: OSError.
    """
    descriptor = os.open("/proc/sys/kernel/cap_last_cap", os.O_RDONLY | os.O_CLOEXEC)
    last = int(os.read(descriptor, 16))
    os.close(descriptor)
    _asked(_AMBIENT, _AMBIENT_CLEARED)
    for number in range(last + 1):
        if number not in numbers:
            _asked(_BOUNDS_DROP, number)
    # What is inherited would come back to root with the next program.
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _checked(_LIBC.capget(header, data))
    for half in (0, 1):
        data[3 * half + 2] = 0
    _checked(_LIBC.capset(header, data))


def _asked(*words: int) -> None:
    _checked(_LIBC.prctl(*map(ctypes.c_ulong, (*words, *[0] * (5 - len(words))))))


def _checked(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "capabilities")
