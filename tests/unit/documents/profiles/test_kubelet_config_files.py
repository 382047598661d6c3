import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.documents.formats.json_documents import merge_patch
from nodewright.documents.profiles.kubelet_config_files import (
    ConfigHost,
    LoadedConfig,
    decode_kubelet_config,
    kubelet_config_from,
    load_kubelet_config,
)
from nodewright.model.errors import InputError
from nodewright.model.hardware import Core, MachineInfo, NUMANode
from nodewright.model.values.duration import Duration
from nodewright.model.values.quantity import Quantity

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def load(tmp_path: Path, text: str) -> LoadedConfig:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + text)
    return load_kubelet_config(file)


def refusals(tmp_path: Path, text: str, *, head: str = HEAD) -> list[str]:
    file = tmp_path / "kubelet.yaml"
    file.write_text(head + text)
    with pytest.raises(InputError) as refused:
        load_kubelet_config(file)
    assert all(fault.source.startswith(str(file)) for fault in refused.value.faults)
    return [f"{fault.path}: {fault.rule}" for fault in refused.value.faults]


def test_a_file_is_loaded_with_defaults_and_gates(tmp_path: Path) -> None:
    loaded_config = load(tmp_path, "maxPods: 50\nfeatureGates:\n  MemoryQoS: true\n")
    assert (loaded_config.config.max_pods, loaded_config.config.pods_per_core) == (50, 0)
    assert loaded_config.gates["MemoryQoS"]
    assert loaded_config.warnings == ()


def test_json_is_accepted_too(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.json"
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 7}
    file.write_text(json.dumps(document))
    assert load_kubelet_config(file).config.max_pods == 7


def test_without_a_file_the_defaults_apply() -> None:
    assert load_kubelet_config().config.eviction_hard["memory.available"] == "100Mi"


def test_unknown_fields_warn_with_their_path(tmp_path: Path) -> None:
    text = "MaxPods: 5\nmemorySwap: {swap: x}\nreservedMemory: [{limit: {}}, {numaNode: 1, x: null}]\n"
    loaded_config = load(tmp_path, text)
    source = tmp_path / "kubelet.yaml"
    assert loaded_config.warnings == tuple(
        f'{source}: unknown field "{path}"'
        for path in ("MaxPods", "memorySwap.swap", "reservedMemory[0].limit", "reservedMemory[1].x")
    )


def test_retiring_gates_are_warnings(tmp_path: Path) -> None:
    loaded_config = load(tmp_path, "featureGates: {NodeSwap: true, CSIVolumeHealth: true}\n")
    assert loaded_config.warnings == (
        f"{tmp_path}/kubelet.yaml: setting GA feature gate NodeSwap; it will be removed in a future release",
    )


TYPES = """
    maxPods: many                       maxPods: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32
    maxPods: 1.5                        maxPods: cannot unmarshal number 1.5 into Go struct field KubeletConfiguration.maxPods of type int32
    maxPods: 3000000000                 maxPods: cannot unmarshal number 3000000000 into Go struct field KubeletConfiguration.maxPods of type int32
    maxPods: 1000000000000000000000000000000   maxPods: cannot unmarshal number 1e+30 into Go struct field KubeletConfiguration.maxPods of type int32
    maxPods: true                       maxPods: cannot unmarshal bool into Go struct field KubeletConfiguration.maxPods of type int32
    podPidsLimit: []                    podPidsLimit: cannot unmarshal array into Go struct field KubeletConfiguration.podPidsLimit of type int64
    cgroupsPerQOS: 1                    cgroupsPerQOS: cannot unmarshal number into Go struct field KubeletConfiguration.cgroupsPerQOS of type bool
    cpuManagerPolicy: {}                cpuManagerPolicy: cannot unmarshal object into Go struct field KubeletConfiguration.cpuManagerPolicy of type string
    memoryReservationPolicy: 1          memoryReservationPolicy: cannot unmarshal number into Go struct field KubeletConfiguration.memoryReservationPolicy of type v1beta1.MemoryReservationPolicy
    memoryThrottlingFactor: x           memoryThrottlingFactor: cannot unmarshal string into Go struct field KubeletConfiguration.memoryThrottlingFactor of type float64
    kubeReserved: 5                     kubeReserved: cannot unmarshal number into Go struct field KubeletConfiguration.kubeReserved of type map[string]string
    kubeReserved: {cpu: 1}              kubeReserved[cpu]: cannot unmarshal number into Go struct field KubeletConfiguration.kubeReserved of type string
    featureGates: {MemoryQoS: "on"}     featureGates[MemoryQoS]: cannot unmarshal string into Go struct field KubeletConfiguration.featureGates of type bool
    enforceNodeAllocatable: pods        enforceNodeAllocatable: cannot unmarshal string into Go struct field KubeletConfiguration.enforceNodeAllocatable of type []string
    enforceNodeAllocatable: [1]         enforceNodeAllocatable[0]: cannot unmarshal number into Go struct field KubeletConfiguration.enforceNodeAllocatable of type string
    memorySwap: x                       memorySwap: cannot unmarshal string into Go struct field KubeletConfiguration.memorySwap of type v1beta1.MemorySwapConfiguration
    memorySwap: {swapBehavior: 1}       memorySwap.swapBehavior: cannot unmarshal number into Go struct field MemorySwapConfiguration.memorySwap.swapBehavior of type string
    reservedMemory: {}                  reservedMemory: cannot unmarshal object into Go struct field KubeletConfiguration.reservedMemory of type []v1beta1.MemoryReservation
    reservedMemory: [1]                 reservedMemory[0]: cannot unmarshal number into Go struct field KubeletConfiguration.reservedMemory of type v1beta1.MemoryReservation
    reservedMemory: [{numaNode: x}]     reservedMemory[0].numaNode: cannot unmarshal string into Go struct field MemoryReservation.reservedMemory.numaNode of type int32
    reservedMemory: [{limits: x}]       reservedMemory[0].limits: cannot unmarshal string into Go struct field MemoryReservation.reservedMemory.limits of type v1.ResourceList
    staticPodURLHeader: {a: b}          staticPodURLHeader[a]: cannot unmarshal string into Go struct field KubeletConfiguration.staticPodURLHeader of type []string
    logging: {verbosity: -1}            logging.verbosity: cannot unmarshal number -1 into Go struct field LoggingConfiguration.logging.verbosity of type v1.VerbosityLevel
    tlsCurvePreferences: x              tlsCurvePreferences: cannot unmarshal string into Go struct field KubeletConfiguration.tlsCurvePreferences of type []int32
    syncFrequency: 5                    syncFrequency: cannot unmarshal number into Go struct field KubeletConfiguration.syncFrequency of type string
"""


@pytest.mark.parametrize("line", TYPES.strip().splitlines())
def test_a_value_of_the_wrong_type_has_the_kubelets_message(tmp_path: Path, line: str) -> None:
    text, message = line.strip().split("   ", maxsplit=1)
    path, _, said = message.strip().partition(": ")
    assert refusals(tmp_path, text) == [f"{path}: failed to decode: json: {said}"]


VALUES = """
    syncFrequency: x                    syncFrequency: time: invalid duration "x"
    syncFrequency: null                 syncFrequency: time: invalid duration ""
    reservedMemory: [{limits: {memory: 1GB2}}]   reservedMemory[0].limits[memory]: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
    reservedMemory: [{limits: {memory: [1]}}]   reservedMemory[0].limits[memory]: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
    reservedMemory: [{limits: {memory: true}}]   reservedMemory[0].limits[memory]: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
"""


@pytest.mark.parametrize("line", VALUES.strip().splitlines())
def test_an_unreadable_cpu_list_has_the_kubelets_message(tmp_path: Path, line: str) -> None:
    text, message = line.strip().split("   ", maxsplit=1)
    path, _, said = message.strip().partition(": ")
    assert refusals(tmp_path, text) == [f"{path}: failed to decode: {said}"]


def test_all_type_mismatches_are_reported_the_kubelets_first(tmp_path: Path) -> None:
    # The kubelet goes through the fields by name and stops at what it cannot read, here the duration.
    text = "maxPods: x\nkubeReserved: {cpu: 1, memory: 2}\nsyncFrequency: soon\nvolumeStatsAggPeriod: later\n"
    paths = [refusal.partition(":")[0] for refusal in refusals(tmp_path, text)]
    assert paths == [
        "syncFrequency",
        "kubeReserved[cpu]",
        "kubeReserved[memory]",
        "maxPods",
        "volumeStatsAggPeriod",
    ]


def test_a_type_mismatch_hides_no_other_fault(tmp_path: Path) -> None:
    text = 'kubeReserved: {foo: 3}\nmaxPods: -1\nevictionHard: {memory.available: "110%"}\n'
    paths = [refusal.partition(":")[0] for refusal in refusals(tmp_path, text)]
    assert paths == ["kubeReserved[foo]", "maxPods", "evictionHard[memory.available]"]


def test_null_counts_as_absent_except_in_maps(tmp_path: Path) -> None:
    text = """
maxPods: null
evictionHard: null
memorySwap: null
cpuCFSQuotaPeriod: null
memoryThrottlingFactor: null
enforceNodeAllocatable: null
reservedMemory: null
userNamespaces: null
featureGates: {AllAlpha: null}
cpuManagerPolicyOptions: {full-pcpus-only: null}
"""
    config = load(tmp_path, text).config
    assert config.max_pods == 110
    assert config.enforce_node_allocatable == ("pods",)
    assert config.eviction_hard["memory.available"] == "100Mi"
    assert config.cpu_cfs_quota_period == Duration(10**8)
    assert config.feature_gates == {"AllAlpha": False}
    assert config.cpu_manager_policy_options == {"full-pcpus-only": ""}
    (refusal,) = refusals(tmp_path, "reservedMemory: [{limits: {memory: null}}]")
    assert "reserved memory may not be zero for NUMA node 0" in refusal


def test_amounts_may_be_numbers(tmp_path: Path) -> None:
    config = load(tmp_path, "reservedMemory: [{limits: {memory: 1.5, hugepages-2Mi: 4194304}}]\n").config
    assert config.reserved_memory[0].limits == {
        "memory": Quantity.parse("1.5"),
        "hugepages-2Mi": Quantity.parse("4Mi"),
    }


KINDS = """
    {kind: KubeletConfiguration}
        apiVersion: Object 'apiVersion' is missing
    {apiVersion: kubelet.config.k8s.io/v1beta1}
        kind: Object 'Kind' is missing
    {apiVersion: kubelet.config.k8s.io/v1alpha1, kind: KubeletConfiguration}
        apiVersion: no kind "KubeletConfiguration" is registered for version "kubelet.config.k8s.io/v1alpha1" in scheme "pkg/kubelet/apis/config/scheme/scheme.go:33"
    {apiVersion: kubelet.config.k8s.io/v1beta1, kind: Pod}
        kind: no kind "Pod" is registered for version "kubelet.config.k8s.io/v1beta1" in scheme "pkg/kubelet/apis/config/scheme/scheme.go:33"
    {apiVersion: a/b/c, kind: KubeletConfiguration}
        apiVersion: unexpected GroupVersion string: a/b/c
    {apiVersion: 1, kind: KubeletConfiguration}
        apiVersion: couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .apiVersion of type string
    {apiVersion: a, kind: [x]}
        kind: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field .kind of type string
    # nothing but a remark
        kind: Object 'Kind' is missing
"""


@pytest.mark.parametrize("pair", [*zip(*[iter(KINDS.strip().splitlines())] * 2, strict=True)])
def test_other_documents_than_a_kubelet_configuration_are_rejected(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    path, _, said = pair[1].strip().partition(": ")
    assert refusals(tmp_path, pair[0].strip(), head="")[0] == f"{path}: failed to decode: {said}"


@pytest.mark.parametrize("text", ["[]", "5", "true", "text"])
def test_a_document_that_is_not_an_object_is_rejected(tmp_path: Path, text: str) -> None:
    (refusal,) = refusals(tmp_path, text, head="")
    assert "couldn't get version/kind; json parse error: json: cannot unmarshal" in refusal


def test_an_empty_file_and_none_are_refused(tmp_path: Path) -> None:
    assert refusals(tmp_path, "", head="") == [f': kubelet config file "{tmp_path}/kubelet.yaml" was empty']
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        load_kubelet_config(tmp_path / "missing.yaml")


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    (refusal,) = refusals(tmp_path, "maxPods: 1\nmaxPods: 2\n")
    assert "maxPods" in refusal


def test_only_the_first_document_counts(tmp_path: Path) -> None:
    loaded_config = load(tmp_path, "maxPods: 1\n---\nmaxPods: 2\n")
    assert loaded_config.config.max_pods == 1
    assert loaded_config.warnings == (f"{tmp_path}/kubelet.yaml: only the first of 2 documents counts",)


def test_all_faults_that_prevent_a_start_are_reported(tmp_path: Path) -> None:
    panic = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
    text = "featureGates: {NodeSwap: false}\nmaxPods: -1\nevictionHard: {memory.available: 200%}\n"
    assert refusals(tmp_path, text) == [
        f"featureGates: {panic}cannot set feature gate NodeSwap to false, feature is locked to true",
        "maxPods: invalid configuration: maxPods (--max-pods) -1 must not be a negative number",
        "evictionHard[memory.available]: eviction percentage threshold memory.available must be <= 100%: 200%",
    ]


def test_relative_paths_are_resolved_against_the_files_directory(tmp_path: Path) -> None:
    config = load(tmp_path, "podLogsDir: logs\nstaticPodPath: /etc/pods\n").config
    assert (config.pod_logs_dir, config.static_pod_path) == (f"{tmp_path}/logs", "/etc/pods")


def test_a_part_of_another_document_needs_no_type() -> None:
    machine = MachineInfo(num_cores=1, topology=(NUMANode(cores=(Core(thread_ids=(0,)),)),))
    loaded_config = kubelet_config_from(
        {"reservedSystemCPUs": "0"}, "profile", host=ConfigHost(machine=machine)
    )
    assert loaded_config.config.reserved_system_cpus == "0"
    with pytest.raises(InputError, match="reserved-cpus: 1 is not a subset of online-cpus: 0"):
        kubelet_config_from({"reservedSystemCPUs": "1"}, "profile", host=ConfigHost(machine=machine))
    with pytest.raises(InputError, match="no kind"):
        kubelet_config_from({"apiVersion": "v1"}, "profile")


def drop_in(directory: Path, name: str, text: str, head: str = HEAD) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + text)


def test_drop_ins_change_the_file_in_the_order_of_their_names(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + "maxPods: 10\nkubeReserved: {cpu: '1', memory: 1Gi}\npodsPerCore: 5\n")
    parts = tmp_path / "kubelet.d"
    drop_in(parts, "20.conf", "maxPods: 20\nkubeReserved: {cpu: null, pid: '100'}\nunknown: 1\n")
    drop_in(parts, "10.conf", "maxPods: 15\npodsPerCore: null\nevictionHard: {memory.available: 1Gi}\n")
    drop_in(parts, "30/x.conf", "enforceNodeAllocatable: []\n")
    drop_in(parts, "notes.txt", "maxPods: 1\n")
    loaded_config = load_kubelet_config(file, config_dir=parts)
    assert loaded_config.config.max_pods == 20
    assert loaded_config.config.kube_reserved == {"memory": "1Gi", "pid": "100"}
    assert loaded_config.config.pods_per_core == 0
    assert loaded_config.config.enforce_node_allocatable == ()
    # Maps are merged, so that the file's (here the default) thresholds stay beside the drop-in's.
    assert loaded_config.config.eviction_hard["memory.available"] == "1Gi"
    assert loaded_config.config.eviction_hard["nodefs.available"] == "10%"
    assert loaded_config.warnings == (
        f"{parts}/notes.txt: skipped, its name does not end in .conf",
        f'{parts}/10.conf + {parts}/20.conf + {parts}/30/x.conf: unknown field "unknown"',
    )


def test_thresholds_that_a_drop_in_removes_stay_removed(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD)
    drop_in(tmp_path / "d", "a.conf", "evictionHard: null\n")
    assert load_kubelet_config(file, config_dir=tmp_path / "d").config.eviction_hard == {}


def test_with_drop_ins_alone_there_are_no_default_thresholds(tmp_path: Path) -> None:
    drop_in(tmp_path, "a.conf", "maxPods: 5\n")
    config = load_kubelet_config(config_dir=tmp_path).config
    assert (config.max_pods, config.eviction_hard) == (5, {})


def test_everything_that_a_file_can_say_survives_drop_ins(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    text = """
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
logging: {flushFrequency: 7000000000, options: {json: {infoBufferSize: 0}}}
registerWithTaints: [{key: a, effect: NoSchedule}]
crashLoopBackOff: {maxContainerRestartPeriod: 10s}
"""
    file.write_text(HEAD + text)
    (tmp_path / "d").mkdir()
    assert load_kubelet_config(file, config_dir=tmp_path / "d").config == load_kubelet_config(file).config


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        ("", "Object 'Kind' is missing"),
        ("kind: KubeletConfiguration\n", "unknown apiVersion/kind: /, Kind=KubeletConfiguration"),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n",
            "unknown apiVersion/kind: kubelet.config.k8s.io/v1, Kind=KubeletConfiguration",
        ),
    ],
)
def test_a_drop_in_must_have_api_version_and_kind(tmp_path: Path, head: str, rule: str) -> None:
    drop_in(tmp_path, "a.conf", "maxPods: 5\n", head)
    with pytest.raises(InputError) as refused:
        load_kubelet_config(config_dir=tmp_path)
    (fault,) = refused.value.faults
    assert fault.rule.startswith(f"failed to load kubelet dropin file, path: {tmp_path}/a.conf, ")
    assert fault.rule.endswith(rule)


def test_a_faulty_value_in_a_drop_in_is_reported(tmp_path: Path) -> None:
    drop_in(tmp_path, "a.conf", "maxPods: x\n")
    with pytest.raises(InputError, match="of type int32") as refused:
        load_kubelet_config(config_dir=tmp_path)
    assert refused.value.faults[0].source == f"{tmp_path}/a.conf"


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        load_kubelet_config(config_dir=tmp_path / "missing")


PATCHES: list[tuple[Any, Any, Any]] = [
    ({"a": 1}, {"a": None}, {}),
    ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
    ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ([1], {"a": 1}, {"a": 1}),
    ({"a": 1}, [2], [2]),
]


@pytest.mark.parametrize(("target", "patch", "merged"), PATCHES)
def test_a_merge_patch_changes_a_document(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged


def test_numbers_beyond_all_floats_are_refused() -> None:
    document = {**yaml.safe_load(HEAD), "memoryThrottlingFactor": 10**400, "maxPods": 10**400}
    faults = decode_kubelet_config(document, "").faults
    assert [fault.message.partition(" into ")[0] for fault in faults] == [
        "json: cannot unmarshal number +Inf",
        "json: cannot unmarshal number +Inf",
    ]
    assert decode_kubelet_config({**yaml.safe_load(HEAD), "maxPods": 5.0}, "").value.max_pods == 5


def test_a_fault_has_the_line_of_its_field(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\n"
        "evictionHard:\n  memory.available: 1GiB\n"
    )
    with pytest.raises(InputError) as raised:
        load_kubelet_config(file)
    assert {fault.path: fault.source for fault in raised.value.faults} == {
        "maxPods": f"{file}:3:1",
        "evictionHard[memory.available]": f"{file}:5:3",
    }
