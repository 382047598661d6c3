"""A format of a state file: its Go struct and its checksum."""

from collections.abc import Iterable
from typing import Any

import msgspec

from nodewright.documents.formats.go_checkpoint import checksum, dump, marshal
from nodewright.documents.formats.go_json import CHECKSUM, Field, Struct, unmarshal
from nodewright.model.reasons.kubelet_start import FormatTried

CHECKSUM_FIELD = Field("Checksum", "checksum", CHECKSUM)
CORRUPTED = "checkpoint is corrupted"


class CheckpointFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format whose checksum is the hash of the whole file with checksum 0.

    Follows: v1.36, cpumanager/state/checkpoint.go, memorymanager/state/checkpoint.go, VerifyChecksum.
    """

    version: int
    kind: Struct
    checksum_type_name: str
    """The name of the struct in the hashed text: older formats have that of the newest one."""
    accepts_zero: bool = True
    """Whether a file without a checksum is accepted."""

    def checksum_text(self, value: dict[str, Any], name: str = "") -> str:
        """The text that is hashed for the checksum."""
        renamed = Struct(name or self.checksum_type_name, self.kind.fields)
        return dump({**value, CHECKSUM_FIELD.name: 0}, renamed, is_pointer=True)

    def encoded(self, value: dict[str, Any]) -> bytes:
        """The file with this content."""
        checksum_value = checksum(self.checksum_text(value))
        return marshal({**value, CHECKSUM_FIELD.name: checksum_value}, self.kind).encode()

    def decode(
        self, content: bytes, into: dict[str, Any], other_names: Iterable[str] = ()
    ) -> FormatTried | None:
        """Decodes the file in this format into ``into``, after an error only in part; returns the failure or None.

        A checksum computed with one of the ``other_names`` of the struct is valid, too.
        """
        error = unmarshal(content, self.kind, into)
        if error is not None:
            return FormatTried(version=self.version, error=error)
        stored = into[CHECKSUM_FIELD.name]
        if stored == 0 and self.accepts_zero:
            return None
        computed = checksum(self.checksum_text(into))
        if stored == computed or any(
            stored == checksum(self.checksum_text(into, name)) for name in other_names
        ):
            return None
        return FormatTried(version=self.version, error=CORRUPTED, checksum=stored, computed=computed)
