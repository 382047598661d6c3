"""What is wrong with state files, in the kubelet's words and in plain ones."""

import pytest

from nodewright.model.state_reasons import (
    FormatTried,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StateFileReason,
    StatePolicyDiffers,
)
from nodewright.render.messages import message, start_error
from nodewright.render.sentences import sentence

TORN = FormatTried(version=1, error="unexpected end of JSON input")
SUMMED = FormatTried(version=2, error="checkpoint is corrupted", checksum=1, computed=2)
DIFFERS = "the checksum is 1, the content's is 2"

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
        "c: of the oldest format, and its container 12ab does not run any more",
    ),
    (
        StateCPUsUnreadable(path="c", cpus="x", error="bad"),
        'could not parse default cpu set "x": bad',
        'c: the shared pool "x" is no set of CPUs (bad)',
    ),
    (
        StateCPUsUnreadable(path="c", cpus="x", error="bad", pod="p", container="a"),
        'could not parse cpuset "x" for container "a" in pod "p": bad',
        'c: "x" of container a, pod p, is no set of CPUs (bad)',
    ),
]
MANAGERS = {"c": "CPU", "m": "memory"}


@pytest.mark.parametrize(("reason", "kubelet", "plain"), SAID, ids=lambda each: type(each).__name__)
def test_every_reason_has_the_kubelets_words_and_plain_ones(
    reason: StateFileReason, kubelet: str, plain: str
) -> None:
    path = reason.path
    assert start_error(reason) == (
        f"could not restore state from checkpoint: {kubelet}, please drain this node and delete the "
        f'{MANAGERS[path]} manager checkpoint file "{path}" before restarting Kubelet'
    )
    assert sentence(reason) == plain


def test_a_damaged_file_of_devices_keeps_no_kubelet_from_starting() -> None:
    damaged = StateFileDamaged(file=StateFile.DEVICES, path="d", tried=(SUMMED,))
    assert message(damaged) == ("", "checkpoint is corrupted")
    assert sentence(damaged) == f"d: {DIFFERS}: damaged or edited by hand"


@pytest.mark.parametrize(("resource", "what"), [("", "NUMA node 1"), ("memory", "memory of NUMA node 1")])
def test_a_crash_is_told_as_one(resource: str, what: str) -> None:
    reason = StateEntryNull(path="m", numa=1, resource=resource)
    assert start_error(reason) == "runtime error: invalid memory address or nil pointer dereference"
    assert sentence(reason) == f"m: {what} is null: the kubelet crashes"
