"""The current export of a node, and the wait for the next one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from nodewright.documents.profiles.node_export import (
    ExportedProfile,
    ExportSource,
    NodeExport,
    SourceState,
    encode_node_export,
    node_export,
)
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.instant import Instant

if TYPE_CHECKING:
    from nodewright.cluster.tasks.timing import Clock


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """A source as it was read last.

    Units: read_s on the monotonic clock.
    """

    name: str
    state: SourceState
    read_s: float | None = None
    """When its content was read; None: never."""
    is_watched: bool = False
    """Whether a change would have been noticed."""
    error: str = ""
    assumed: str = ""

    def at(self, now_s: float) -> ExportSource:
        """The source with its age."""
        is_current = self.is_watched and self.state is not SourceState.FAILED
        age_s = None if self.read_s is None else 0.0 if is_current else max(0.0, now_s - self.read_s)
        return ExportSource(
            name=self.name,
            state=self.state,
            age_milliseconds=None if age_s is None else round(age_s * 1000),
            error=self.error,
            assumed=self.assumed,
        )

    @property
    def facts(self) -> tuple[str, ...]:
        """What makes a difference to readers, besides the age."""
        return self.name, self.state, self.error, self.assumed


class ExportReading(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its sources describe it."""

    profile: NodeProfile
    sources: tuple[SourceReading, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


class ServedExport(msgspec.Struct, frozen=True, kw_only=True):
    """An export and its JSON."""

    export: NodeExport
    content: bytes


class ExportFeed:
    """The latest export of a node; its generation is the time of the change, so that it outlives restarts."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._reading: ExportReading | None = None
        self._exported: ExportedProfile | None = None
        self._changed = asyncio.Event()
        self.generation = 0
        """That of the latest export; 0: there is none.

        Units: milliseconds since 1970, or one more than the generation before.
        """
        self.changes = 0
        """How often the export has changed."""
        self.error = "the node has not been read yet"
        """Why there is no export, or why the latest is old; empty: it is current."""
        self.on_change: Callable[[], None] = lambda: None

    def publish(self, reading: ExportReading) -> bool:
        """Takes over a reading; whether it differs from the one before."""
        before, self._reading, self.error = self._reading, reading, ""
        if before is not None and _facts(before) == _facts(reading):
            return False
        if self._exported is None or before is None or before.profile != reading.profile:
            self._exported = ExportedProfile.of(reading.profile, self._exported)
        self.generation = max(self.generation + 1, self._clock.now_ns() // 10**6)
        self.changes += 1
        self._wake()
        return True

    def fail(self, error: str, sources: Sequence[SourceReading] = ()) -> None:
        """Records that the node cannot be read at the moment; the latest export stays, with these sources."""
        self.error = error
        if self._reading is None:
            return
        before, self._reading = self._reading, msgspec.structs.replace(self._reading, sources=tuple(sources))
        if _facts(before) != _facts(self._reading):
            self.generation = max(self.generation + 1, self._clock.now_ns() // 10**6)
            self.changes += 1
            self._wake()

    def current(self) -> ServedExport | None:
        """The export as of now; None if there is none."""
        if self._reading is None or self._exported is None:
            return None
        now_s = self._clock.monotonic_s()
        export = node_export(
            self._exported,
            generation=self.generation,
            observed_time=Instant(self._clock.now_ns()),
            sources=[source.at(now_s) for source in self._reading.sources],
            warnings=self._reading.warnings,
            assumed=self._reading.assumed,
        )
        return ServedExport(export=export, content=encode_node_export(export, self._exported.content))

    @property
    def digest(self) -> str:
        """The digest of the latest profile; empty if there is none."""
        return self._exported.digest if self._exported else ""

    async def wait_after(self, generation: int, timeout_s: float) -> bool:
        """Waits until there is an export of a later generation; False at the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.generation <= generation:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()


def _facts(reading: ExportReading) -> tuple[object, ...]:
    sources = tuple(source.facts for source in reading.sources)
    return reading.profile, sources, reading.warnings, reading.assumed
