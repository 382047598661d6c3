"""A state file in one of its formats: Go's structure and how its checksum is taken."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nodewright.model.state_reasons import FormatTried
from nodewright.world.state.godecode import unmarshal
from nodewright.world.state.goencode import checksum, dump, marshal
from nodewright.world.state.gotypes import CHECKSUM, Field, Struct

CHECKSUM_FIELD = Field("Checksum", "checksum", CHECKSUM)
CORRUPTED = "checkpoint is corrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of a file: the whole of it is hashed, with checksum 0.

    Follows: v1.36, cpumanager/state/checkpoint.go, memorymanager/state/checkpoint.go, VerifyChecksum.
    """

    version: int
    kind: Struct
    hashed_as: str
    """The name of the structure in the hashed text: older formats go by the newest one's."""
    accepts_zero: bool = True
    """Whether a file without a checksum is taken as it is."""

    def hashed_text(self, value: dict[str, Any], name: str = "") -> str:
        """The text that the checksum is taken of."""
        renamed = Struct(name or self.hashed_as, self.kind.fields)
        return dump({**value, CHECKSUM_FIELD.name: 0}, renamed, is_pointer=True)

    def written(self, value: dict[str, Any]) -> bytes:
        """The file with this content."""
        found = checksum(self.hashed_text(value))
        return marshal({**value, CHECKSUM_FIELD.name: found}, self.kind).encode()

    def load(
        self, content: bytes, into: dict[str, Any], other_names: Iterable[str] = ()
    ) -> FormatTried | None:
        """What speaks against the file in this format, None if nothing; ``into`` is filled as far as it goes.

        A checksum taken under one of the ``other_names`` will do, too.
        """
        error = unmarshal(content, self.kind, into)
        if error is not None:
            return FormatTried(version=self.version, error=error)
        stored = into[CHECKSUM_FIELD.name]
        if stored == 0 and self.accepts_zero:
            return None
        computed = checksum(self.hashed_text(into))
        if stored == computed or any(
            stored == checksum(self.hashed_text(into, name)) for name in other_names
        ):
            return None
        return FormatTried(version=self.version, error=CORRUPTED, checksum=stored, computed=computed)
