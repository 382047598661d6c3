"""Errors with which a kubelet does not start, and our sentences about them."""

import pytest

from nodewright.model.reasons.cpu import CPUPolicyUnknown, SharedPoolEmpty
from nodewright.model.reasons.kubelet_start import (
    ConfigurationRefused,
    OverReserved,
    ReservedBeyondCapacity,
    StateCPUsUnreadable,
    StateEntryNull,
)
from nodewright.model.reasons.memory import MemoryAssignedWithoutMachine, NoReservedMemory
from nodewright.model.reasons.reason import Reason, kubelet_fatal_error, kubelet_text, sentence
from nodewright.model.values.quantity import Quantity

BEYOND = ReservedBeyondCapacity(
    over=(OverReserved(resource="cpu", reservation=Quantity.parse("9"), capacity=Quantity.parse("8")),)
)

FATAL: list[tuple[Reason, str]] = [
    (CPUPolicyUnknown(policy="odd"), 'failed to run Kubelet: unknown policy: "odd"'),
    (NoReservedMemory(), "failed to run Kubelet: [memorymanager] you should specify the system reserved memory"),
    (SharedPoolEmpty(), "start cpu manager error: default cpuset cannot be empty"),
    (MemoryAssignedWithoutMachine(),
     "start memory manager error: [memorymanager] machine state can not be empty when it has memory assignments"),
    (StateCPUsUnreadable(path="f", cpus="3-1", error='invalid range "3-1" (3 > 1)'),
     ('start cpu manager error: could not restore state from checkpoint: could not parse default cpu set "3-1": '
      'invalid range "3-1" (3 > 1), please drain this node and delete the CPU manager checkpoint file "f" '
      "before restarting Kubelet")),
    (StateEntryNull(path="f", numa=0, resource=""), "runtime error: invalid memory address or nil pointer dereference"),
    (ConfigurationRefused(path="maxPods", error="no"), "no"),
    (BEYOND, ('invalid Node Allocatable configuration. Resource "cpu" has a reservation of {{9 0} {<nil>} 9 DecimalSI} '
              "but capacity of {{8 0} {<nil>} 8 DecimalSI}. Expected capacity >= reservation.")),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "words"), FATAL)
def test_a_kubelet_that_cannot_start_logs_this_error(reason: Reason, words: str) -> None:
    assert kubelet_fatal_error(reason) == words


def test_a_start_error_has_no_pod_reason_and_the_sentence_names_the_field() -> None:
    refused = ConfigurationRefused(path="maxPods", error="must not be a negative number")
    assert kubelet_text(refused).reason == ""
    assert sentence(refused) == "maxPods: must not be a negative number"
    assert sentence(ConfigurationRefused(path="", error="is empty")) == "is empty"
    assert sentence(BEYOND) == "cpu: 9 reserved of 8, 1 too much; the kubelet does not start"
