"""The state files of 1.37, whose member `data` decides: their bytes, what is read of them, and the way back to 1.36."""

import json
import re
from typing import Any

import pytest

from nodewright.documents.formats.go_checkpoint import checksum
from nodewright.documents.profiles.state_files.cpu_manager_state import (
    ContainerName,
    CPUStateReadOptions,
    cpu_state_file,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    memory_state_file,
    read_memory_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.reasons.reason import kubelet_start_error
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet, NUMASet

NEW, OLD = RELEASE_TABLES["1.37"].rules, RELEASE_TABLES["1.36"].rules
CPUS = CPUState(
    CPUSet.of(0),
    {"pod-a": {"main": CPUSet.of(1, 3)}, "pod-b": {"c0": CPUSet.of(2), "c1": CPUSet.of(4, 5)}},
    {"pod-c": CPUSet.of(6, 7)},
)
BLOCKS = (Block((0,), "memory", 512),)
MEMORY = MemoryState(
    {0: NUMAMemory(1, NUMASet.of(0), {"memory": MemoryTable(2048, 512, 1536, 512, 1024)})},
    {"pod-a": {"main": BLOCKS}},
    {"pod-c": BLOCKS},
)
POLICIES = {"cpu": "static", "memory": "Static"}
VERSIONS = {"cpu": "v4", "memory": "v3"}
OLD_PART = {
    "cpu": "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string",
    "memory": "checkpoint is corrupted",
}
"""What 1.36 says about a damaged older part."""
FILES = ("cpu", "memory")


def state(file: str, *, pods: bool) -> CPUState | MemoryState:
    if file == "cpu":
        return CPUS if pods else CPUState(CPUS.default, CPUS.assignments)
    return MEMORY if pods else MemoryState(MEMORY.machine, MEMORY.assignments)


def written(file: str, *, rules: Any = NEW, gate: bool = True) -> bytes:
    if file == "cpu":
        return cpu_state_file(CPUS, "static", pod_level=gate, rules=rules)
    return memory_state_file(MEMORY, "Static", pod_level=gate, rules=rules)


def read(file: str, content: bytes, *, rules: Any = NEW, gate: bool = False, **more: Any) -> Any:
    """The state; or the kubelet's error between its beginning and the advice at its end."""
    policy = more.pop("policy", POLICIES[file])
    verdict: Any
    if file == "cpu":
        reading = CPUStateReadOptions(path="file", policy=policy, pod_level=gate, rules=rules, **more)
        verdict = read_cpu_state(content, reading)
    else:
        verdict = read_memory_state(
            content, MemoryStateReadOptions(path="file", policy=policy, pod_level=gate, rules=rules)
        )
    if isinstance(verdict, Granted):
        return verdict.value
    assert isinstance(verdict, Refused)
    text = re.fullmatch(
        r"could not restore state from checkpoint: (.*), please drain this node and delete the .* manager checkpoint "
        r'file "file" before restarting Kubelet',
        kubelet_start_error(verdict.because[0]),
    )
    assert text is not None
    return text[1]


def changed(content: bytes, **members: Any) -> bytes:
    """The file with other members; None removes one."""
    document = {**json.loads(content), **members}
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def with_data(file: str, change: Any, *, keeps_checksum: bool = False) -> bytes:
    """The file with another text in `data`, and its checksum unless that is kept."""
    content = written(file)
    text = change(json.loads(content)["data"])
    return changed(
        content, data=text, **({} if keeps_checksum else {"dataChecksum": checksum(f"(string){text}")})
    )


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("state", "policy", "expected"),
    [
        (
            CPUState(),
            "none",
            (
                r'{"policyName":"none","defaultCpuSet":"","checksum":1353318690,'
                r'"data":"{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}","dataChecksum":3028111495}'
            ),
        ),
        (
            CPUState(CPUSet.parse("0-7")),
            "static",
            (
                r'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152,'
                r'"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0-7\"}","dataChecksum":3294586087}'
            ),
        ),
        (
            CPUS,
            "static",
            (
                r'{"policyName":"static","defaultCpuSet":"0","entries":{"pod-a":{"main":"1,3"},"pod-b":{"c0":"2",'
                r'"c1":"4-5"}},"checksum":1137419575,"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0\",'
                r"\"entries\":{\"pod-a\":{\"main\":\"1,3\"},\"pod-b\":{\"c0\":\"2\",\"c1\":\"4-5\"}},"
                r'\"podEntries\":{\"pod-c\":{\"cpuSet\":\"6-7\"}}}","dataChecksum":561362340}'
            ),
        ),
    ],
)
def test_the_cpu_managers_file_has_its_content_in_data(state: CPUState, policy: str, expected: str) -> None:
    assert cpu_state_file(state, policy, pod_level=True, rules=NEW).decode() == expected


def test_the_memory_managers_file_has_its_content_in_data() -> None:
    expected = (
        r'{"policyName":"None","machineState":{},"checksum":4236770233,'
        r'"data":"{\"policyName\":\"None\",\"machineState\":{}}","dataChecksum":3093843326}'
    )
    assert memory_state_file(MemoryState(), "None", rules=NEW).decode() == expected


@pytest.mark.parametrize("file", FILES)
def test_the_members_beside_data_are_those_of_1_36_without_pod_level_managers(file: str) -> None:
    document = json.loads(written(file))
    older = json.loads(written(file, rules=OLD, gate=False))
    assert [*document] == [*older, "data", "dataChecksum"]
    assert {name: document[name] for name in older} == older


@pytest.mark.parametrize("file", FILES)
def test_the_pod_level_is_written_in_data_alone_and_with_the_gate_alone(file: str) -> None:
    document = json.loads(written(file))
    assert "podEntries" not in document
    assert [*json.loads(document["data"])["podEntries"]] == ["pod-c"]
    assert b"podEntries" not in written(file, gate=False)


def test_names_are_escaped_and_sorted_in_both_parts() -> None:
    held = CPUState(CPUSet(), {"p": {"b<c>&d": CPUSet.of(1), "a": CPUSet.of(2)}})
    text = cpu_state_file(held, "static", rules=NEW).decode()
    assert r'"entries":{"p":{"a":"2","b\u003cc\u003e\u0026d":"1"}}' in text
    assert r"\"p\":{\"a\":\"2\",\"b\\u003cc\\u003e\\u0026d\":\"1\"}" in text
    assert read("cpu", text.encode()) == held


@pytest.mark.parametrize("file", FILES)
def test_the_checksum_of_data_is_that_of_its_text(file: str) -> None:
    document = json.loads(written(file))
    assert document["dataChecksum"] == checksum(f"(string){document['data']}")


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_the_gate_decides_whether_the_pod_level_is_read(file: str, *, gate: bool) -> None:
    assert read(file, written(file), gate=gate) == state(file, pods=gate)


@pytest.mark.parametrize(
    "members",
    [
        {"checksum": 0},
        {"checksum": 1},
        {"policyName": "other"},
        {"entries": {}},
        {"entries": None, "policyName": None, "checksum": None},
    ],
)
@pytest.mark.parametrize("file", FILES)
def test_data_decides_whatever_the_older_members_are(file: str, members: dict[str, Any]) -> None:
    assert read(file, changed(written(file), **members), gate=True) == state(file, pods=True)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (lambda file: changed(written(file), dataChecksum=1), "checkpoint is corrupted"),
        (lambda file: changed(written(file), dataChecksum=0), "checkpoint is corrupted"),
        (lambda file: changed(written(file), dataChecksum=None), "checkpoint is corrupted"),
        (
            lambda file: with_data(file, lambda text: text + " ", keeps_checksum=True),
            "checkpoint is corrupted",
        ),
        (
            lambda file: changed(written(file), data=None),
            "failed to deserialize FILE manager checkpoint data: unexpected end of JSON input",
        ),
        (
            lambda file: changed(written(file), data=""),
            "failed to deserialize FILE manager checkpoint data: unexpected end of JSON input",
        ),
        (
            # The error of the JSON text is reported before that of the checksum.
            lambda file: with_data(file, lambda text: text[:-1], keeps_checksum=True),
            "failed to deserialize FILE manager checkpoint data: unexpected end of JSON input",
        ),
        (
            lambda file: with_data(file, lambda _: '{"policyName":1}'),
            (
                "failed to deserialize FILE manager checkpoint data: json: cannot unmarshal number into Go struct field "
                "NAMEManagerCheckpointData.policyName of type string"
            ),
        ),
        (
            lambda file: changed(written(file), policyName=1),
            (
                "failed to deserialize FILE manager checkpoint: json: cannot unmarshal number into Go struct field "
                "NAMEManagerCheckpoint.NAMEManagerCheckpointOLDEST.policyName of type string"
            ),
        ),
    ],
)
def test_a_file_with_damaged_data_is_read_in_no_older_format(file: str, content: Any, cause: str) -> None:
    # The oldest format beside `data` is V2 in the CPU manager's file, V1 in the memory manager's.
    names = {
        "FILE": file,
        "NAME": {"cpu": "CPU"}.get(file, "Memory"),
        "OLDEST": {"cpu": "V2"}.get(file, "V1"),
    }
    for word, name in names.items():
        cause = cause.replace(word, name)
    for gate in (False, True):
        assert read(file, content(file), gate=gate) == f"could not load {VERSIONS[file]} checkpoint: {cause}"


@pytest.mark.parametrize("file", FILES)
def test_the_sentence_about_damaged_data_names_both_checksums(file: str) -> None:
    content = changed(written(file), dataChecksum=7)
    verdict = (
        read_cpu_state(content, CPUStateReadOptions(path="file", policy="static", rules=NEW))
        if file == "cpu"
        else read_memory_state(content, MemoryStateReadOptions(path="file", policy="Static", rules=NEW))
    )
    computed = json.loads(written(file))["dataChecksum"]
    assert isinstance(verdict, Refused)
    assert verdict.because[0].sentence() == (
        f"file: the dataChecksum is 7, that of the content is {computed}: damaged or edited by hand"
    )


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("text", ["null", "{}"])
def test_data_without_a_policy_has_another_one(file: str, text: str) -> None:
    prefix = "[memorymanager] " if file == "memory" else ""
    expected = f'{prefix}configured policy "{POLICIES[file]}" differs from state checkpoint policy ""'
    assert read(file, with_data(file, lambda _: text)) == expected


@pytest.mark.parametrize("file", FILES)
def test_another_policy_is_refused(file: str) -> None:
    prefix = "[memorymanager] " if file == "memory" else ""
    expected = f'{prefix}configured policy "other" differs from state checkpoint policy "{POLICIES[file]}"'
    assert read(file, written(file), policy="other") == expected


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "change",
    [
        lambda text: json.dumps(json.loads(text), indent=1),
        lambda text: json.dumps({**json.loads(text), "later": {"a": [1]}}),
    ],
)
def test_data_with_another_layout_or_unknown_members_is_read(file: str, change: Any) -> None:
    assert read(file, with_data(file, change), gate=True) == state(file, pods=True)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("end", "error"),
    [
        (0, "unexpected end of JSON input"),
        (20, "unexpected end of JSON input"),
        (-20, "unexpected end of JSON input"),
        ("in an escape", "invalid character ' ' in string escape code"),
    ],
)
def test_a_file_that_is_cut_has_the_error_of_the_last_format(file: str, end: Any, error: str) -> None:
    content = written(file)
    cut = content[: content.index(b"\\") + 1] if isinstance(end, str) else content[:end]
    assert read(file, cut) == error


def test_sets_in_data_that_are_none_are_refused() -> None:
    text = with_data("cpu", lambda text: text.replace('"defaultCpuSet":"0"', '"defaultCpuSet":"x"'))
    assert (
        read("cpu", text) == 'could not parse default CPU set "x": strconv.Atoi: parsing "x": invalid syntax'
    )
    text = with_data("cpu", lambda text: text.replace('"1,3"', '"3-1"'))
    expected = 'could not parse cpuset "3-1" for container "main" in pod "pod-a": invalid range "3-1" (3 > 1)'
    assert read("cpu", text) == expected


# ---------------------------------------------------------------- files of older kubelets


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("wrote_pods", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_files_of_1_36_are_read_whatever_its_gate_was(file: str, *, wrote_pods: bool, gate: bool) -> None:
    content = written(file, rules=OLD, gate=wrote_pods)
    assert read(file, content, gate=gate) == state(file, pods=wrote_pods and gate)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_a_file_of_1_36_without_a_checksum_is_read_without_the_pod_level(file: str, *, gate: bool) -> None:
    for wrote_pods in (False, True):
        content = changed(written(file, rules=OLD, gate=wrote_pods), checksum=0)
        # The format with the pod level needs a checksum; the one below it does not, and nothing else is kept.
        assert read(file, content, gate=gate) == state(file, pods=False)


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_1_36_with_another_checksum_is_corrupted(file: str) -> None:
    assert read(file, changed(written(file, rules=OLD, gate=False), checksum=1)) == "checkpoint is corrupted"


@pytest.mark.parametrize("file", FILES)
def test_a_file_without_data_and_its_checksum_is_an_old_one(file: str) -> None:
    for members in ({"data": None, "dataChecksum": None}, {"data": "", "dataChecksum": 0}):
        assert read(file, changed(written(file), **members), gate=True) == state(file, pods=False)


def test_the_oldest_format_of_the_cpu_manager_is_no_longer_migrated() -> None:
    content = b'{"policyName":"static","defaultCpuSet":"0","entries":{"id":"1"},"checksum":0}'
    names = {"id": ContainerName("p", "a")}
    held = CPUState(CPUSet.of(0), {"p": {"a": CPUSet.of(1)}})
    assert read("cpu", content, rules=OLD, container_names=names) == held
    assert read("cpu", content, container_names=names) == (
        "json: cannot unmarshal string into Go struct field CPUManagerCheckpointV2.entries of type map[string]string"
    )
    empty = b'{"policyName":"static","defaultCpuSet":"0","checksum":0}'
    assert read("cpu", empty) == CPUState(CPUSet.of(0))


# ---------------------------------------------------------------- the way back


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("wrote_pods", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_1_36_reads_the_older_part_and_loses_the_pod_level_without_a_word(
    file: str, *, wrote_pods: bool, gate: bool
) -> None:
    assert read(file, written(file, gate=wrote_pods), rules=OLD, gate=gate) == state(file, pods=False)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("members", [{"dataChecksum": 1}, {"data": "{"}, {"data": None}])
@pytest.mark.parametrize("file", FILES)
def test_1_36_does_not_notice_that_data_is_damaged(file: str, members: Any, *, gate: bool) -> None:
    content = changed(written(file), **members)
    assert read(file, content, rules=OLD, gate=gate) == state(file, pods=False)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_1_36_does_not_start_on_a_damaged_older_part(file: str, *, gate: bool) -> None:
    assert read(file, changed(written(file), checksum=1), rules=OLD, gate=gate) == OLD_PART[file]


@pytest.mark.parametrize("file", FILES)
def test_1_36_without_the_gate_does_not_start_on_a_file_that_it_wrote_with_it(file: str) -> None:
    content = written(file, rules=OLD)
    assert read(file, content, rules=OLD, gate=False) == OLD_PART[file]
    assert read(file, content, rules=OLD, gate=True) == state(file, pods=True)


@pytest.mark.parametrize("release", ["1.32", "1.33", "1.34", "1.35"])
@pytest.mark.parametrize("file", FILES)
def test_older_kubelets_read_the_older_part_as_well(file: str, release: str) -> None:
    assert read(file, written(file), rules=RELEASE_TABLES[release].rules) == state(file, pods=False)
