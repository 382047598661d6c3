"""The kubelet's errors about state files, and our sentences."""

import pytest

from nodewright.model.reasons.kubelet_start import (
    FormatTried,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StateFileReason,
    StatePolicyDiffers,
)
from nodewright.model.reasons.reason import kubelet_start_error, kubelet_text, sentence

TORN = FormatTried(version=1, error="unexpected end of JSON input")
SUMMED = FormatTried(version=2, error="checkpoint is corrupted", checksum=1, computed=2)
DIFFERS = "the checksum is 1, that of the content is 2"

SAID: list[tuple[StateFileReason, str, str]] = [
    (
        StateFileDamaged(file=StateFile.MEMORY, path="m", tried=(SUMMED, TORN)),
        "unexpected end of JSON input",
        f"m: {DIFFERS}: damaged, edited by hand, or written by a kubelet with other feature gates",
    ),
    (
        StateFileDamaged(file=StateFile.CPU, path="c", tried=(TORN,)),
        "unexpected end of JSON input",
        "c: damaged: unexpected end of JSON input",
    ),
    (
        StatePolicyDiffers(file=StateFile.MEMORY, path="m", configured="Static", written="None"),
        '[memorymanager] configured policy "Static" differs from state checkpoint policy "None"',
        "m: written under the policy None, the kubelet is configured to Static",
    ),
    (
        StatePolicyDiffers(file=StateFile.CPU, path="c", configured="none", written="static"),
        'configured policy "none" differs from state checkpoint policy "static"',
        "c: written under the policy static, the kubelet is configured to none",
    ),
    (
        StateContainerUnknown(path="c", container_id="12ab"),
        "failed to migrate checkpoint from v1 to v2: containerID '12ab' not found in initial containers list",
        "c: in the oldest format, and its container 12ab no longer runs",
    ),
    (
        StateCPUsUnreadable(path="c", cpus="x", error="bad"),
        'could not parse default cpu set "x": bad',
        'c: the shared pool "x" is not a CPU set (bad)',
    ),
    (
        StateCPUsUnreadable(path="c", cpus="x", error="bad", pod="p", container="a"),
        'could not parse cpuset "x" for container "a" in pod "p": bad',
        'c: "x" of container a, pod p, is not a CPU set (bad)',
    ),
]
MANAGERS = {"c": "CPU", "m": "memory"}


@pytest.mark.parametrize(("reason", "kubelet", "plain"), SAID, ids=lambda each: type(each).__name__)
def test_every_reason_has_the_kubelets_error_and_a_sentence(
    reason: StateFileReason, kubelet: str, plain: str
) -> None:
    path = reason.path
    assert kubelet_start_error(reason) == (
        f"could not restore state from checkpoint: {kubelet}, please drain this node and delete the "
        f'{MANAGERS[path]} manager checkpoint file "{path}" before restarting Kubelet'
    )
    assert sentence(reason) == plain


def test_the_kubelet_starts_with_a_damaged_file_of_the_device_manager() -> None:
    damaged = StateFileDamaged(file=StateFile.DEVICES, path="d", tried=(SUMMED,))
    assert kubelet_text(damaged) == ("", "checkpoint is corrupted")
    assert sentence(damaged) == f"d: {DIFFERS}: damaged or edited by hand"


@pytest.mark.parametrize(("resource", "what"), [("", "NUMA node 1"), ("memory", "memory of NUMA node 1")])
def test_a_null_entry_crashes_the_kubelet(resource: str, what: str) -> None:
    reason = StateEntryNull(path="m", numa=1, resource=resource)
    assert kubelet_start_error(reason) == "runtime error: invalid memory address or nil pointer dereference"
    assert sentence(reason) == f"m: {what} is null: the kubelet crashes"
