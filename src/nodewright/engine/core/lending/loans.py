"""What borrowers may use of a node together: ceilings that fall at once, and grow by steps.

Borrowers are BestEffort pods. Without a loan they have what no pod requests; a loan adds what is requested and not reserved.
"""

import msgspec

GROWTH_PERCENT = 10
"""A ceiling grows by at most so much of what is allocatable in one step."""
IGNORED_PERCENT = 1
"""A ceiling does not grow at all for less, so that a steady node writes nothing."""
_PERCENT = 100
_MIB = 1 << 20


class Loans(msgspec.Struct, frozen=True, kw_only=True):
    """What borrowers may use together.

    Units: thousandths of a CPU; bytes.
    """

    cpu_milli: int
    memory_bytes: int
    owed_bytes: int = 0
    """Memory that they hold beyond that, in whole MiB: it has to come back."""


class LendableAmount(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a node: what it has, what its pods request, and what those that lend keep.

    Units: thousandths of a CPU, or bytes.
    """

    allocatable: int
    requested: int
    reserved: int | None
    """At least what these pods use; None: as before."""

    @property
    def unrequested(self) -> int:
        """What borrowers have without a loan."""
        return max(self.allocatable - self.requested, 0)


def ceiling_after(before: int | None, amount: LendableAmount) -> int:
    """The ceiling of a resource; ``before``: None at the first loan.

    What is reserved and the ceiling fit into what is allocatable, whatever the ceiling was.

    >>> half_used = LendableAmount(allocatable=10_000, requested=8_000, reserved=4_000)
    >>> busy = LendableAmount(allocatable=10_000, requested=8_000, reserved=9_500)
    >>> ceiling_after(None, half_used), ceiling_after(3_000, half_used), ceiling_after(3_000, busy)
    (3000, 4000, 500)
    """
    ceiling = amount.unrequested if before is None else before
    if amount.reserved is None:
        return ceiling
    target = max(amount.allocatable - amount.reserved, 0)
    if target - ceiling > amount.allocatable * IGNORED_PERCENT // _PERCENT:
        ceiling += amount.allocatable * GROWTH_PERCENT // _PERCENT
    return min(ceiling, target)


def loans_after(
    before: Loans | None, cpu: LendableAmount, memory: LendableAmount, borrowed_bytes: int
) -> Loans | None:
    """The loans; None until something is lent for the first time: borrowers are then not limited.

    Units: ``borrowed_bytes``: what the borrowers use.
    """
    if before is None and all(
        amount.reserved is None or amount.reserved >= amount.requested for amount in (cpu, memory)
    ):
        return None
    cpu_milli = ceiling_after(None if before is None else before.cpu_milli, cpu)
    memory_bytes = ceiling_after(None if before is None else before.memory_bytes, memory)
    owed = max(borrowed_bytes - memory_bytes, 0)
    return Loans(cpu_milli=cpu_milli, memory_bytes=memory_bytes, owed_bytes=-(-owed // _MIB) * _MIB)
