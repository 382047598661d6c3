"""What happens to pods and to the node, as it is told to people."""

import msgspec


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a pod or, where there is none, to the node: told once, counted when it recurs.

    Units: moments in nanoseconds since 1970.
    """

    number: int
    uid: str
    namespace: str
    name: str
    """Empty: the node."""
    is_warning: bool
    reason: str
    message: str
    first_ns: int
    last_ns: int
    count: int = 1
