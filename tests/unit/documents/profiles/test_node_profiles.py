""""""

from pathlib import Path

import pytest

from nodewright.documents.profiles.node_profiles import find_profile, load_profile, profile_from_bytes
from nodewright.model.errors import InputError

HEAD = b"apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\n"
SPEC = b"""metadata: {name: small}
spec:
  rootFsCapacity: 100000000000
  machineInfo:
    machine_id: passed over
    num_cores: 2
    memory_capacity: 8589934592
    topology:
    - {node_id: 0, memory: 8589934592, caches: [], cores: [{core_id: 0, thread_ids: [0, 1], socket_id: 0}]}
  kubeletConfiguration: {kubeReserved: {cpu: 100m}, futureField: 1}
  devices: {vendor.example/gpu: [{id: gpu0, numaNodes: [0], healthy: true}]}
  pods:
  - metadata: {name: web, uid: "1"}
    spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}
"""


def refusal(content: bytes) -> list[str]:
    with pytest.raises(InputError) as refused:
        profile_from_bytes(content, "node.yaml")
    return [str(fault) for fault in refused.value.faults]


def test_a_profile_is_read_with_its_machine_and_its_pods(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_bytes(HEAD + SPEC)
    profile = load_profile(path)
    assert profile.spec.machine_info.topology[0].cores[0].thread_ids == (0, 1)
    assert [pod.full_name for pod in profile.spec.pods] == ["default/web"]
    assert profile.spec.kubelet_configuration["futureField"] == 1


REFUSED = [
    (HEAD + b"spec: {machineInfo: {num_cores: x}, kubletConfiguration: {}, devices: {gpu: [{}]}, "
            b"pods: [{spec: {containers: [{resorces: 1}]}}]}",
     ['node.yaml:3:22: spec.machineInfo.num_cores: Invalid value: "x": must be a 64-bit integer, not a string',
      'node.yaml:3:37: spec.kubletConfiguration: unknown field; did you mean "kubeletConfiguration"?',
      "node.yaml:3:78: spec.devices[gpu][0].id: Required value",
      'node.yaml:3:113: spec.pods[0].spec.containers[0].resorces: unknown field; did you mean "resources"?']),
    (b"apiVersion: v1\nkind: Pod",
     ["node.yaml: expected a document with apiVersion: nodewright.dev/v1alpha1 and kind: NodeProfile"]),
    (b"[]", ["node.yaml: expected a document with apiVersion: nodewright.dev/v1alpha1 and kind: NodeProfile"]),
    (b"", ["node.yaml: expected one NodeProfile, not 0 documents"]),
    (HEAD + b"---\n" + HEAD, ["node.yaml: expected one NodeProfile, not 2 documents"]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "faults"), REFUSED)
def test_an_invalid_profile_is_rejected_with_all_faults(content: bytes, faults: list[str]) -> None:
    assert refusal(content) == faults


SETTINGS = [
    ("kubeletDefects: mend", 'spec.kubeletDefects: Unsupported value: "mend": supported values: "follow", "avoid"'),
    ("preferredAllocation: {a.b/c: lowest, a.b/d: loudest}",
     ('spec.preferredAllocation[a.b/d]: Unsupported value: "loudest": '
     'supported values: "absent", "lowest", "highest", "asked"')),
    ("cgroupVersion: 3", "spec.cgroupVersion: Invalid value: 3: must be 1 or 2"),
    ("rootFsCapacity: -1", "spec.rootFsCapacity: Invalid value: -1: must be greater than or equal to 0"),
    ("swapBytes: -1", "spec.swapBytes: Invalid value: -1: must be greater than or equal to 0"),
    ("pidMax: -1", "spec.pidMax: Invalid value: -1: must be greater than or equal to 0"),
    ("taints: [{key: a, effect: NoExecut}]",
     ('spec.taints[0].effect: Unsupported value: "NoExecut": '
      'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"')),
    ("pageSizeBytes: 0", "spec.pageSizeBytes: Invalid value: 0: must be greater than zero"),
    ("devices: {a.b/c: [{id: x}, {id: z}, {id: x}]}", 'spec.devices[a.b/c]: Duplicate value: "x"'),
    ("allocations: [{pod: a, container: b}, {pod: a, container: b, cpus: 3-1}]",
     'spec.allocations[1].cpus: Invalid value: "3-1": \'3-1\' ends before it begins'),
    ("pods: [{spec: {containers: [{name: a, resources: {requests: {cpu: -1}}}]}}]",
     'spec.pods[0].spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "fault"), SETTINGS)
def test_a_profile_must_not_name_unknown_values(setting: str, fault: str) -> None:
    faults = refusal(HEAD + f"spec:\n  {setting}\n".encode())
    assert fault in [fault.split(": ", 1)[1] for fault in faults]


def test_a_machine_that_contradicts_itself_is_refused_at_its_line() -> None:
    content = HEAD + SPEC.replace(b"thread_ids: [0, 1]", b"thread_ids: [0, 0]")
    faults = refusal(content)
    assert faults
    assert all(fault.startswith(("node.yaml:11:", "node.yaml:8:")) for fault in faults), faults


def test_a_missing_profile_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        load_profile("absent.yaml")


def test_pods_of_a_node_must_have_unique_uids() -> None:
    pod = "{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}"
    with pytest.raises(InputError) as caught:
        profile_from_bytes(HEAD + f"spec:\n  pods:\n  - {pod}\n  - {pod}\n".encode(), "node.yaml")
    assert [(fault.path, fault.value) for fault in caught.value.faults] == [("spec.pods[1]", "default/web")]


def test_faults_of_fields_hide_neither_those_of_the_machine_nor_of_the_configuration() -> None:
    text = """spec:
  foo: 1
  machineInfo: {num_cores: 1, memory_capacity: -3}
  kubeletConfiguration: {maxPods: -1}
"""
    with pytest.raises(InputError) as caught:
        profile_from_bytes(HEAD + text.encode(), "node.yaml")
    result = "\n".join(map(str, caught.value.faults))
    for path in ("spec.foo", "spec.machineInfo.memory_capacity", "maxPods"):
        assert path in result


def test_unknown_parts_of_not_judged_are_rejected() -> None:
    text = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\nspec: {notJudged: [{part: cpus}, {part: kernel}]}"
    with pytest.raises(
        InputError, match=r"spec.notJudged\[1\].part: Unsupported value: \"kernel\": supported values"
    ):
        profile_from_bytes(text.encode(), "f")


def test_conditions_are_those_of_the_node() -> None:
    head = b"apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\nspec: "
    assert profile_from_bytes(head + b"{conditions: [PIDPressure]}", "p").spec.conditions == ("PIDPressure",)
    with pytest.raises(InputError) as caught:
        profile_from_bytes(head + b"{conditions: [Tired]}", "p")
    (fault,) = caught.value.faults
    assert str(fault).endswith(
        'spec.conditions[0]: Invalid value: "Tired": must be one of DiskPressure, MemoryPressure, PIDPressure'
    )


def test_no_reference_means_this_machine() -> None:
    profile = find_profile(None)
    assert profile.spec.machine_info.num_cores > 0
    assert profile.spec.machine_info.memory_capacity > 0
    assert profile.spec.root_fs_capacity > 0


def test_a_reference_to_nothing_is_an_input_error() -> None:
    with pytest.raises(InputError, match="neither a file nor a name"):
        find_profile("no/such/profile.yaml")


def test_bytes_may_be_written_as_quantities() -> None:
    spec = SPEC.replace(b"memory_capacity: 8589934592", b"memory_capacity: 8Gi, hugepages: X").replace(
        b"memory_capacity: 8Gi, hugepages: X",
        b"memory_capacity: 8Gi\n    hugepages: [{page_size: 2Mi, num_pages: 1}]",
    )
    spec = spec.replace(b"memory: 8589934592", b"memory: 8Gi").replace(b"100000000000", b"100G")
    profile = profile_from_bytes(HEAD + spec + b"  swapBytes: 1.5Gi\n", "node.yaml")
    machine = profile.spec.machine_info
    assert (machine.memory_capacity, machine.topology[0].memory) == (8 << 30, 8 << 30)
    assert machine.hugepages[0].page_size == 2048
    assert (profile.spec.root_fs_capacity, profile.spec.swap_bytes) == (10**11, 3 << 29)


@pytest.mark.parametrize("amount", ["lots", "128GB", "''", "1" + "0" * 400, "100E", "'-100E'"])
def test_bytes_that_are_no_quantity_are_refused_with_an_example(amount: str) -> None:
    (fault,) = refusal(HEAD + f"spec: {{machineInfo: {{memory_capacity: {amount}}}}}\n".encode())
    assert "spec.machineInfo.memory_capacity" in fault
    assert fault.endswith("must be a number of bytes or a quantity such as 128Gi")


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("{cpus: 32}", "machineInfo.num_cores"),
        ("{memory: 128Gi}", "machineInfo.memory_capacity"),
        ("{topology: []}", "machineInfo"),
        ("{gpus: 8}", "devices"),
        ("{disk: 1Ti}", "rootFsCapacity"),
        ("{kubelet: {}}", "kubeletConfiguration"),
        ("{machineInfo: {cpus: 32}}", "num_cores"),
        ("{machineInfo: {memory: 128Gi}}", "memory_capacity"),
    ],
)
def test_an_unknown_field_of_a_node_gets_the_one_that_was_meant(spec: str, meant: str) -> None:
    (fault,) = refusal(HEAD + f"spec: {spec}\n".encode())
    assert f'unknown field; did you mean "{meant}"?' in fault


@pytest.mark.parametrize(("node", "assumed"), [("vm-4", 0), ("other", 1)])
def test_pods_of_which_none_is_on_the_node_are_named_as_not_read(
    node: str, assumed: int, tmp_path: Path
) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b, uid: c}\n"
        f"spec: {{nodeName: {node}, containers: [{{name: d, image: e}}]}}\nstatus: {{phase: Running}}\n"
    )
    for reference in ("vm-4", str(node_object(tmp_path))):
        profile = find_profile(reference, pods=pods)
        sources = [source for source in profile.spec.sources if source.name == "pods" and source.error]
        assert (len(profile.spec.pods), len(sources)) == (1 - assumed, assumed)
        assert [source.error for source in sources] == ["left out: 1 pod not on vm-4"] * assumed


def node_object(folder: Path) -> Path:
    path = folder / "node.yaml"
    amounts = "{cpu: '4', memory: 8Gi, pods: '110'}"
    path.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: vm-4}\n"
        f"status: {{capacity: {amounts}, allocatable: {amounts}, nodeInfo: {{kubeletVersion: v1.36.1}}}}\n"
    )
    return path
