"""The `reservedMemory` that is proposed is one with which the memory manager is made."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.memory.memory_policy import (
    MemorySettings,
    Reservation,
    StaticMemoryPolicy,
    create_memory_policy,
    valid_reservations,
)
from nodewright.model.hardware import MachineInfo
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.testing.machines import machines

MIB = 1 << 20
AMOUNTS = st.integers(0, 300).map(lambda count: Quantity.of(count * MIB, QuantityFormat.BINARY_SI))
KINDS = st.dictionaries(st.sampled_from(("memory", "hugepages-2Mi", "hugepages-1Gi", "cpu")), AMOUNTS)
GIVEN = st.lists(st.builds(Reservation, st.integers(0, 9), KINDS), max_size=3)


@given(machine=machines(max_numa=4), reserved=KINDS, given_ones=GIVEN)
def test_what_is_proposed_is_taken(
    machine: MachineInfo, reserved: dict[str, Quantity], given_ones: list[Reservation]
) -> None:
    right = valid_reservations(machine.topology, reserved, given_ones)
    if "memory" not in reserved or reserved["memory"].is_zero():
        assert right is None
        return
    assert right is not None
    assert all(not amount.is_zero() for reservation in right for amount in reservation.limits.values())
    settings = MemorySettings(policy="Static", reserved=right, node_allocatable=reserved)
    made = create_memory_policy(machine.topology, settings)
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticMemoryPolicy)
    assert valid_reservations(machine.topology, reserved, right) == right
