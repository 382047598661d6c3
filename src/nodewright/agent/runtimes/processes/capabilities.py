"""Removes capabilities from the calling process for good. Imported by shims, only if a container needs it."""

import ctypes
import os

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_VERSION_3 = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def set_no_new_privs() -> None:
    """No program that the process runs gains privileges.

    Errors: OSError.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def limit_capabilities(numbers: set[int]) -> None:
    """Limits the process, and all that it runs, to these capabilities.

    Errors: OSError.
    """
    descriptor = os.open("/proc/sys/kernel/cap_last_cap", os.O_RDONLY | os.O_CLOEXEC)
    last = int(os.read(descriptor, 16))
    os.close(descriptor)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(last + 1):
        if number not in numbers:
            _prctl(_PR_CAPBSET_DROP, number)
    # Inheritable capabilities would come back to root with the next program.
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _checked(_LIBC.capget(header, data))
    for half in (0, 1):
        data[3 * half + 2] = 0
    _checked(_LIBC.capset(header, data))


def _prctl(*arguments: int) -> None:
    _checked(_LIBC.prctl(*map(ctypes.c_ulong, (*arguments, *[0] * (5 - len(arguments))))))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "capabilities")
