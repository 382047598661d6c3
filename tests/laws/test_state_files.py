"""State files give back what was written; any bytes give a state or say why not."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.formats.go_json import GoJSONError, Members, NumberText, parse
from nodewright.documents.profiles.state_files.cpu_manager_state import (
    CPUStateReadOptions,
    cpu_state_file,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_checkpoint_bytes,
    read_device_checkpoint,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    memory_state_file,
    read_memory_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.errors import InputError
from nodewright.model.reasons.reason import kubelet_start_error, sentence
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet, NUMASet

# Go keeps no halves of pairs in its texts.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
CPUS = st.integers(0, 2**40 - 1).map(CPUSet)
WORDS = st.integers(0, 2**64 - 1)
NUMA = st.integers(0, 9)
KINDS = st.sampled_from(("memory", "hugepages-2Mi", "hugepages-1Gi"))
BLOCK = st.builds(Block, st.lists(NUMA, max_size=3).map(tuple), KINDS, WORDS)
BLOCKS = st.lists(BLOCK, max_size=2).map(tuple)
SOME_BLOCKS = st.lists(BLOCK, min_size=1, max_size=2).map(tuple)
POLICIES = st.sampled_from(("static", "none", "Static", ""))


def by_text(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(TEXTS, values, max_size=3)


CPU_STATES = st.builds(CPUState, CPUS, by_text(by_text(CPUS)), by_text(CPUS))
TABLES = st.builds(MemoryTable, WORDS, WORDS, WORDS, WORDS, WORDS)
NODES = st.builds(
    NUMAMemory,
    st.integers(-9, 9),
    st.integers(0, 1023).map(NUMASet),
    st.dictionaries(KINDS, TABLES, max_size=2),
)
MEMORY_STATES = st.builds(
    MemoryState,
    st.dictionaries(NUMA, NODES, max_size=3),
    by_text(by_text(BLOCKS)),
    by_text(SOME_BLOCKS),
)
IDS = st.lists(TEXTS, max_size=3).map(tuple)
ENTRIES = st.builds(
    PodDevicesEntry,
    pod=TEXTS,
    container=TEXTS,
    resource=TEXTS,
    devices=st.dictionaries(st.integers(-1, 12), IDS, max_size=3),
    response=st.binary(max_size=8),
)
DEVICE_FILES = st.builds(DeviceCheckpoint, st.none() | st.lists(ENTRIES, max_size=3).map(tuple), by_text(IDS))


OLDER = RELEASE_TABLES["1.36"].rules
RULES = st.sampled_from([table.rules for table in RELEASE_TABLES.values()])


@given(state=CPU_STATES, policy=POLICIES, writing=RULES, reading=RULES, gate=st.booleans())
def test_cpus_are_read_as_they_were_written(
    state: CPUState, policy: str, writing: ReleaseRules, reading: ReleaseRules, *, gate: bool
) -> None:
    """Another release reads what containers hold; the pod level only if it knows the format."""
    gate = gate and writing.pod_entries_in_state_files and reading.pod_entries_in_state_files
    options = CPUStateReadOptions(path="", policy=policy, pod_level=gate, rules=reading)
    keeps_pods = gate and (reading.state_files_with_data or not writing.state_files_with_data)
    expected = state if keeps_pods else replace(state, pods={})
    file = cpu_state_file(state, policy, pod_level=gate, rules=writing)
    assert read_cpu_state(file, options) == Granted(expected)


@given(state=MEMORY_STATES, policy=POLICIES, writing=RULES, reading=RULES, gate=st.booleans())
def test_memory_is_read_as_it_was_written(
    state: MemoryState, policy: str, writing: ReleaseRules, reading: ReleaseRules, *, gate: bool
) -> None:
    """As CPUs are."""
    gate = gate and writing.pod_entries_in_state_files and reading.pod_entries_in_state_files
    options = MemoryStateReadOptions(path="", policy=policy, pod_level=gate, rules=reading)
    keeps_pods = gate and (reading.state_files_with_data or not writing.state_files_with_data)
    expected = state if keeps_pods else replace(state, pods={})
    file = memory_state_file(state, policy, pod_level=gate, rules=writing)
    assert read_memory_state(file, options) == Granted(expected)


@given(file=DEVICE_FILES)
def test_devices_are_read_as_they_were_written(file: DeviceCheckpoint) -> None:
    assert read_device_checkpoint(device_checkpoint_bytes(file), "") == Granted(file)


FRAGMENTS = st.sampled_from(
    (
        *('{"policyName":', '"static"', '"defaultCpuSet":', '"0-3"', '"entries":', '"podEntries":', '"p"', "{", "}"),
        *('{"Data":', '"PodDeviceEntries":', '"DeviceIDs":', '"AllocResp":', '"machineState":', '"memoryMap":'),
        *('"data":"{', '"dataChecksum":1', '"1":', '"cpuSet":', '"memoryBlocks":', '"checksum":0}', "null", "[", "]", ",", "-1", "1e9", '"\\u00', "\xff"),
    )
)  # fmt: skip
WHOLE = st.sampled_from(
    (
        cpu_state_file(CPUState(CPUSet.of(0), {"p": {"a": CPUSet.of(1)}}, {"q": CPUSet.of(2)}), "static"),
        memory_state_file(MemoryState({0: NUMAMemory(0, NUMASet.of(0), {})}), "static", pod_level=True),
        cpu_state_file(CPUState(CPUSet.of(0), {"p": {"a": CPUSet.of(1)}}), "static", rules=OLDER),
        memory_state_file(MemoryState({0: NUMAMemory(0, NUMASet.of(0), {})}), "static", rules=OLDER),
        device_checkpoint_bytes(DeviceCheckpoint()),
    )
)


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """A file in which some bytes were changed, left out or put in."""
    content = bytearray(draw(WHOLE))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(content)


@example(b'{"policyName":"static","entries":{"p":{"a":"0-99999999"}},"checksum":0}')
@example(b'{"policyName":"static","machineState":{"0":null},"checksum":0}')
@given(
    content=st.binary(max_size=30)
    | edited()
    | st.lists(FRAGMENTS, max_size=12).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_give_a_state_or_say_why_not(content: bytes) -> None:
    newer = RELEASE_TABLES["1.37"].rules
    for pod_level, rules in ((False, OLDER), (True, OLDER), (True, newer)):
        cpus = CPUStateReadOptions(path="", policy="static", pod_level=pod_level, rules=rules)
        memory = MemoryStateReadOptions(path="", policy="static", pod_level=pod_level, rules=rules)
        assert_answered(partial(read_cpu_state, content, cpus))
        assert_answered(partial(read_memory_state, content, memory))
    assert_answered(partial(read_device_checkpoint, content, ""))


def assert_answered(read: Callable[[], Verdict[Any]]) -> None:
    try:
        result = read()
    except InputError as error:
        # Numbers that the kubelet would accept and nodewright does not.
        assert re.search("CPU numbers must be|NUMA nodes must be", str(error))  # noqa: PT017 - it may be raised or not
        return
    if isinstance(result, Refused):
        assert kubelet_start_error(result.because[0])
        assert sentence(result.because[0])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(document=JSON, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_json_is_read_as_python_reads_it(document: Any, ascii_only: bool, indent: int | None) -> None:
    def plain(node: Any) -> Any:
        if isinstance(node, Members):
            return {name: plain(value) for name, value in node.pairs}
        if isinstance(node, list):
            return [plain(each) for each in node]
        return json.loads(node.text) if isinstance(node, NumberText) else node

    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert plain(parse(text.encode())) == document


@given(text=st.text('{}[]",:0123456789.eE+-truefalsn \\u', max_size=12))
def test_texts_that_python_rejects_are_rejected(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        is_json = False
    else:
        is_json = True
    try:
        parse(text.encode())
    except GoJSONError:
        assert not is_json
    else:
        assert is_json
