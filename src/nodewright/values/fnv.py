"""A hash that is the same everywhere and always, for telling texts apart; no protection against anybody."""


def fnv1a_32(text: str) -> int:
    """The 32-bit FNV-1a hash of a text.

    >>> fnv1a_32("")
    2166136261
    """
    found = 0x811C9DC5
    for byte in text.encode():
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found
