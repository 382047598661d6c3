"""The pods of a run: all of them, or only those that are not done yet, so that a long run needs no more than a short one."""

from nodewright.sim.fleet.values import Forgotten, PodRecord


class Roll:
    """The records of pods by their numbers."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        """Whether pods that are done stay on it."""
        self.arrived = 0
        self.records: dict[int, PodRecord] = {}
        """In the order of arrival."""
        self.forgotten = Forgotten()

    def __getitem__(self, number: int) -> PodRecord:
        return self.records[number]

    def get(self, number: int) -> PodRecord | None:
        """The record of this pod; None: it has been forgotten."""
        return self.records.get(number)

    def add(self, record: PodRecord) -> int:
        """The number of a pod that arrives."""
        number = self.arrived
        self.records[number] = record
        self.arrived += 1
        return number

    def done(self, number: int) -> None:
        """Nothing happens to this pod any more."""
        if not self.keeps:
            self.forgotten.take(self.records.pop(number))
