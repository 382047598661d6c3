"""The kubelet's state files as 1.36 writes and reads them: valid ones, older formats and broken ones."""

import json
from functools import partial

import pytest

from nodewright.documents.profiles.state_files import cpu_manager_state, memory_manager_state
from nodewright.documents.profiles.state_files.cpu_manager_state import (
    ContainerName,
    CPUStateReadOptions,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_checkpoint,
    device_checkpoint_bytes,
    device_state_from_checkpoint,
    read_device_checkpoint,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    read_memory_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.reasons.kubelet_start import (
    FormatTried,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet, NUMASet

RULES = RELEASE_TABLES["1.36"].rules
cpu_state_file = partial(cpu_manager_state.cpu_state_file, rules=RULES)
memory_state_file = partial(memory_manager_state.memory_state_file, rules=RULES)

STATIC = CPUStateReadOptions(path="cpus", policy="static", rules=RULES)
POD_LEVEL = CPUStateReadOptions(path="cpus", policy="static", pod_level=True, rules=RULES)
CPUS = CPUState(CPUSet.parse("0,4-7"), {"p1": {"a": CPUSet.of(1, 2)}}, {"p2": CPUSet.of(3)})
NO_PODS = CPUState(CPUS.default, CPUS.assignments)
UNSUMMED = '{"policyName":"static","defaultCpuSet":"0","entries":%s,"checksum":0}'

MEMORY = MemoryStateReadOptions(path="memory", policy="Static", rules=RULES)
MEMORY_PODS = MemoryStateReadOptions(path="memory", policy="Static", pod_level=True, rules=RULES)
TABLE = MemoryTable(100, 10, 90, 40, 50)
BLOCKS = (Block((0, 1), "memory", 40),)
HELD = MemoryState(
    {0: NUMAMemory(1, NUMASet.of(0, 1), {"memory": TABLE})}, {"p1": {"a": BLOCKS}}, {"p2": BLOCKS}
)


def test_what_is_written_is_read_again() -> None:
    assert read_cpu_state(cpu_state_file(NO_PODS, "static"), STATIC) == Granted(NO_PODS)
    assert read_cpu_state(cpu_state_file(CPUS, "static", pod_level=True), POD_LEVEL) == Granted(CPUS)
    assert read_memory_state(memory_state_file(HELD, "Static", pod_level=True), MEMORY_PODS) == Granted(HELD)


def test_the_gate_decides_whether_pods_are_kept() -> None:
    assert b"podEntries" not in cpu_state_file(CPUS, "static")
    assert read_cpu_state(cpu_state_file(CPUS, "static"), POD_LEVEL) == Granted(NO_PODS)
    old = read_memory_state(memory_state_file(HELD, "Static"), MEMORY_PODS)
    assert old == Granted(MemoryState(HELD.machine, HELD.assignments))


def test_a_file_with_pods_is_damaged_for_a_kubelet_without_the_gate() -> None:
    refused = read_cpu_state(cpu_state_file(CPUS, "static", pod_level=True), STATIC)
    assert isinstance(refused, Refused)
    (reason,) = refused.because
    assert isinstance(reason, StateFileDamaged)
    newest, oldest = reason.tried
    assert (newest.version, newest.checksum, newest.computed) == (2, 1268330737, 2313894236)
    assert oldest == FormatTried(
        version=1,
        error="json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string",
    )


def test_the_kubelet_cannot_read_back_a_pod_without_memory_blocks() -> None:
    written = memory_state_file(MemoryState(pods={"p": ()}), "Static", pod_level=True)
    assert isinstance(read_memory_state(written, MEMORY_PODS), Refused)


def test_a_checksum_of_0_is_accepted_and_pods_are_kept() -> None:
    document = json.loads(cpu_state_file(CPUS, "static", pod_level=True))
    unsummed = json.dumps({**document, "checksum": 0}, indent=1).encode()
    assert read_cpu_state(unsummed, STATIC) == Granted(NO_PODS)
    assert read_cpu_state(unsummed, POD_LEVEL) == Granted(CPUS)
    document = json.loads(memory_state_file(HELD, "Static", pod_level=True))
    assert read_memory_state(json.dumps({**document, "checksum": 0}).encode(), MEMORY_PODS) == Granted(HELD)


def test_a_checksum_under_the_name_of_the_older_format_is_valid() -> None:
    # "state.CPUManagerCheckpointV2" as the hashed text's first word.
    content = b'{"policyName":"static","defaultCpuSet":"0","checksum":1966458924}'
    assert read_cpu_state(content, STATIC) == Granted(CPUState(CPUSet.of(0)))
    assert isinstance(read_cpu_state(content, POD_LEVEL), Refused)


def test_the_oldest_format_names_containers_by_id() -> None:
    content = (UNSUMMED % '{"c1":"1-2","c2":"3"}').encode()
    running = {"c1": ContainerName("p", "a"), "c2": ContainerName("p", "b")}
    for pod_level in (False, True):
        reading = CPUStateReadOptions(
            path="cpus", policy="static", container_names=running, pod_level=pod_level, rules=RULES
        )
        assert read_cpu_state(content, reading) == Granted(
            CPUState(CPUSet.of(0), {"p": {"a": CPUSet.of(1, 2), "b": CPUSet.of(3)}})
        )
    gone = read_cpu_state(content, STATIC)
    assert gone == Refused((StateContainerUnknown(path="cpus", container_id="c1"),))


def test_another_policy_is_rejected() -> None:
    none = CPUStateReadOptions(path="cpus", policy="none", rules=RULES)
    differs = StatePolicyDiffers(file=StateFile.CPU, path="cpus", configured="none", written="static")
    assert read_cpu_state(cpu_state_file(CPUS, "static"), none) == Refused((differs,))
    differs = StatePolicyDiffers(file=StateFile.MEMORY, path="memory", configured="Static", written="None")
    assert read_memory_state(memory_state_file(HELD, "None"), MEMORY) == Refused((differs,))


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (
            '{"p":{"b":"1","a":"2-x"}}',
            StateCPUsUnreadable(
                path="cpus",
                cpus="2-x",
                error='strconv.Atoi: parsing "x": invalid syntax',
                pod="p",
                container="a",
            ),
        ),
        (
            '{},"defaultCpuSet":"3-1"',
            StateCPUsUnreadable(path="cpus", cpus="3-1", error='invalid range "3-1" (3 > 1)'),
        ),
    ],
)
def test_invalid_cpu_sets_are_reported(entries: str, reason: StateCPUsUnreadable) -> None:
    assert read_cpu_state((UNSUMMED % entries).encode(), STATIC) == Refused((reason,))


def test_pods_that_were_read_before_a_broken_set_are_kept_as_the_kubelet_does() -> None:
    content = UNSUMMED % '{},"podEntries":{"p":{"cpuSet":"1"},"q":{"cpuSet":"x"},"r":{"cpuSet":"2"}}'
    cpu_state = read_cpu_state(content.encode(), POD_LEVEL)
    assert cpu_state == Granted(CPUState(CPUSet.of(0), {}, {"p": CPUSet.of(1)}))


def test_nulls_count_as_absent() -> None:
    content = (UNSUMMED % '{"p":null},"podEntries":{"q":null}').encode()
    assert read_cpu_state(content, POD_LEVEL) == Granted(CPUState(CPUSet.of(0), {"p": {}}, {"q": CPUSet()}))
    empty = b'{"policyName":"Static","machineState":null,"entries":null,"checksum":0}'
    assert read_memory_state(empty, MEMORY_PODS) == Granted(MemoryState())


@pytest.mark.parametrize(
    ("machine", "numa", "resource"), [('{"3":null}', 3, ""), ('{"0":{"memoryMap":{"memory":null}}}', 0, "memory")]
)  # fmt: skip
def test_a_null_in_the_machine_crashes_the_kubelet(machine: str, numa: int, resource: str) -> None:
    content = f'{{"policyName":"Static","machineState":{machine},"checksum":0}}'
    null = StateEntryNull(path="memory", numa=numa, resource=resource)
    assert read_memory_state(content.encode(), MEMORY) == Refused((null,))


@pytest.mark.parametrize(
    "content", [UNSUMMED % '{"p":{"a":"0-99999999999"}}', UNSUMMED % '{"p":{"a":"70000"}}']
)
def test_cpu_numbers_above_the_limit_are_rejected(content: str) -> None:
    with pytest.raises(InputError, match="CPU numbers must be at most 65535"):
        read_cpu_state(content.encode(), STATIC)


@pytest.mark.parametrize("numa", ["-1", "99999999999"])
def test_numa_nodes_out_of_range_are_rejected(numa: str) -> None:
    content = f'{{"policyName":"Static","machineState":{{"{numa}":{{}}}},"checksum":0}}'
    with pytest.raises(InputError, match="NUMA nodes must be from 0 to 65535"):
        read_memory_state(content.encode(), MEMORY)


DEVICES = {"v/gpu": (Device("g0", (0,)), Device("g1", (0, 1)), Device("g2", healthy=False)), "v/nic": ()}
HOLDING = DeviceState.of(DEVICES, {"p": {"a": {"v/gpu": frozenset({"g0", "g1", "g2", "gone"})}}})


def test_devices_are_listed_for_each_of_their_numa_nodes() -> None:
    file = device_checkpoint(HOLDING.with_allocation_response("p", "a", "v/gpu", b"hi"))
    entry = PodDevicesEntry(
        pod="p",
        container="a",
        resource="v/gpu",
        devices={-1: ("g2", "gone"), 0: ("g0", "g1"), 1: ("g1",)},
        response=b"hi",
    )
    assert file == DeviceCheckpoint((entry,), {"v/gpu": ("g0", "g1"), "v/nic": ()})
    assert read_device_checkpoint(device_checkpoint_bytes(file), "devices") == Granted(file)
    assert device_checkpoint(DeviceState()) == DeviceCheckpoint(None)


def test_after_a_restart_devices_are_held_and_none_is_allocatable() -> None:
    state = device_state_from_checkpoint(device_checkpoint(HOLDING))
    assert (state.pod_devices, state.in_use) == (HOLDING.pod_devices, HOLDING.in_use)
    assert state.is_device_plugin_resource("v/gpu")
    assert state.is_device_plugin_resource("v/nic")
    assert not state.free("v/gpu")


@pytest.mark.parametrize(
    ("content", "tried"),
    [
        (b"{", FormatTried(version=1, error="unexpected end of JSON input")),
        (
            device_checkpoint_bytes(DeviceCheckpoint()).replace(b"3467439661", b"0"),
            FormatTried(version=1, error="checkpoint is corrupted", checksum=0, computed=3467439661),
        ),
    ],
)
def test_damaged_device_checkpoints_are_reported(content: bytes, tried: FormatTried) -> None:
    damaged = StateFileDamaged(file=StateFile.DEVICES, path="devices", tried=(tried,))
    assert read_device_checkpoint(content, "devices") == Refused((damaged,))
