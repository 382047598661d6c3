"""Kubelet configurations as distributions write them."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.documents import InputFile, read_file
from nodewright.documents.profiles.kubelet_config_files import load_kubelet_config, read_written_config
from nodewright.documents.profiles.kubelet_forms import FORMS, read_kubelet_configs
from nodewright.model.errors import InputError

EXAMPLES = Path("examples/kubelet/forms")
SOFT = {"memory.available": "500Mi"}


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
        ("openshift.yaml", "spec.kubeletConfig.", {"maxPods": 500, "evictionSoft": SOFT, "systemReserved": {"cpu": "500m", "memory": "2Gi", "ephemeral-storage": "1Gi"}}),
        ("kops.yaml", "spec.kubelet.", {"authentication": {"anonymous": {"enabled": False}}, "evictionSoft": SOFT, "featureGates": {"MemoryQoS": False}, "kubeReserved": {"cpu": "100m", "memory": "256Mi"}, "enforceNodeAllocatable": ["pods"]}),
        ("eks.yaml", "spec.kubelet.config.", {"maxPods": 58, "evictionSoft": SOFT, "cpuManagerPolicy": "static", "cgroupDriver": "systemd"}),
        ("karpenter.yaml", "spec.kubelet.", {"maxPods": 58, "evictionSoft": SOFT}),
        ("eksctl.yaml", "nodeGroups[0].kubeletExtraConfig.", {"evictionSoft": SOFT}),
        ("gardener.yaml", "spec.kubernetes.kubelet.", {"podPidsLimit": 4096, "evictionSoft": SOFT, "systemReserved": {"ephemeral-storage": "1Gi"}}),
        ("kubeadm.yaml", "", {"maxPods": 60, "cgroupDriver": "systemd", "evictionSoft": SOFT}),
        ("cluster-api.yaml", "", {"evictionSoft": SOFT}),
        ("kubeadm-config-map.yaml", "data.kubelet.", {"cgroupDriver": "systemd", "evictionSoft": SOFT}),
        ("kind.yaml", "nodes[1].kubeadmConfigPatches[0].", {"maxPods": 60, "evictionSoft": SOFT, "cgroupRoot": "/kubelet", "imageGCHighThresholdPercent": 100}),
        ("10-kubelet-flags.conf", "", {"maxPods": 60, "evictionSoft": SOFT}),
        ("talos.yaml", "machine.kubelet.extraConfig.", {"featureGates": {"MemoryQoS": False}, "evictionSoft": SOFT, "serverTLSBootstrap": True, "failSwapOn": False}),
        ("k3s.yaml", "", {"maxPods": 60, "evictionSoft": SOFT, "kubeReserved": {"cpu": "200m", "memory": "256Mi"}, "evictionHard": {"imagefs.available": "5%", "nodefs.available": "5%"}}),
        ("bottlerocket.toml", "settings.kubernetes.", {"maxPods": 58, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "evictionSoft": SOFT, "shutdownGracePeriodCriticalPods": "10s", "kubeReserved": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"}}),
        ("gke.yaml", "kubeletConfig.", {"cpuCFSQuota": True, "podPidsLimit": 4096, "evictionSoft": SOFT, "topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod"}),
        ("aks.json", "", {"cpuCFSQuota": True, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 90, "containerLogMaxSize": "20M", "podPidsLimit": 4096, "allowedUnsafeSysctls": ["kernel.msg*"], "failSwapOn": False}),
    ],
)  # fmt: skip
def test_a_form_is_read_as_a_kubelet_configuration(name: str, prefix: str, expected: dict[str, Any]) -> None:
    config = read_kubelet_configs(read_file(str(EXAMPLES / name)))[0]
    assert config.prefix == prefix
    assert {field: config.document.get(field) for field in expected} == expected
    assert not read_written_config(EXAMPLES / name).unknown_fields


def test_each_form_has_an_example() -> None:
    read = {config.note().partition(";")[0].removeprefix("read as ") for path in EXAMPLES.iterdir() for config in read_kubelet_configs(read_file(str(path)))}  # fmt: skip
    missing = {form.name for form in FORMS} - read - {"kubeadm", "Cluster API control plane"}
    assert not missing


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kops.yaml", "spec.kubelet.networkPluginName"),
        ("eks.yaml", "--node-labels"),
        ("k3s.yaml", "--config"),
        ("kubeadm.yaml", "--node-ip"),
        ("kind.yaml", "--node-labels"),
        ("10-kubelet-flags.conf", "--config"),
        ("bottlerocket.toml", "settings.kubernetes.cluster-name"),
    ],
)
def test_what_is_not_judged_is_named(name: str, text: str) -> None:
    assert text in read_written_config(EXAMPLES / name).warnings[0]


def test_the_control_plane_of_kops_has_the_fields_of_all_nodes_below_its_own() -> None:
    nodes, control_plane = read_kubelet_configs(read_file(str(EXAMPLES / "kops.yaml")))
    assert control_plane.document == {**nodes.document, "maxPods": 60}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("kubelet-arg: max-pods=5", {"maxPods": 5}),
        ("kubelet-arg: [--max-pods=5, feature-gates=A=true]", {"maxPods": 5, "featureGates": {"A": True}}),
        ("kubelet-arg: [protect-kernel-defaults=true]", {"protectKernelDefaults": True}),
    ],
)
def test_flags_are_read_in_every_notation(flags: str, expected: dict[str, Any]) -> None:
    (config,) = read_kubelet_configs(InputFile("k3s.yaml", flags.encode()))
    assert {field: config.document.get(field) for field in expected} == expected


@pytest.mark.parametrize(
    "content",
    [
        "--max-pods=5\n# a comment\n--v 2\n",
        'KUBELET_KUBEADM_ARGS="--max-pods=5"\nKUBELET_EXTRA_ARGS=\n',
        "ExecStart=/usr/bin/kubelet \\\n  --max-pods 5 \\\n  $MORE\nRestart=always\n",
    ],
)
def test_flags_are_read_from_files_of_flags_variables_and_units(content: str) -> None:
    (config,) = read_kubelet_configs(InputFile("kubelet", content.encode()))
    assert config.document["maxPods"] == 5


def test_a_config_map_of_something_else_is_no_kubelet_configuration() -> None:
    content = (
        "{apiVersion: v1, kind: ConfigMap, data: {kubelet: 'a: [', other: 'kind: KubeletConfiguration'}}"
    )
    assert not read_kubelet_configs(InputFile("a.yaml", content.encode()))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ('KUBELET_EXTRA_ARGS="--max-pods=5', "not the flags of a kubelet: No closing quotation"),
        ("KUBELET_EXTRA_ARGS=--max-pods=x", "must be number"),
        (
            "{apiVersion: v1, kind: ConfigMap, data: {kubelet: 'kind: KubeletConfiguration: {'}}",
            "mapping values are not allowed",
        ),
        ("kubelet-arg: [max-pods=x]", "must be number"),
        (
            "{apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, spec: {kubeletConfig: {failSwapOn: false}}}",
            "KubeletConfiguration: failSwapOn is not allowed to be set",
        ),
        ("kubeletConfig: 5", "must be an object"),
        ("foo: {kubelet: {}}", "no known form of a kubelet configuration; the nearest is"),
        ("cpuManagerPolicy: static", "the nearest is KubeletConfiguration of kubelet.config.k8s.io/v1beta1"),
    ],
)
def test_what_is_wrong_is_an_error(content: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_kubelet_config(path)
    assert any(rule in fault.rule for fault in caught.value.faults)


def test_a_drop_in_has_no_other_form(tmp_path: Path) -> None:
    (tmp_path / "10.conf").write_bytes((EXAMPLES / "gke.yaml").read_bytes())
    with pytest.raises(InputError, match="Object 'Kind' is missing"):
        load_kubelet_config(None, config_dir=tmp_path)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("cpu-manager-policy-options = [1, {}]", {"cpuManagerPolicyOptions": {"1": "true", "{}": "true"}}),
        ('memory-manager-reserved-memory = {0 = {enabled = true, memory = "1Gi"}, 1 = {enabled = false}, a = 1}', {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}),
        ("topology-manager = {1 = 2}", {}),
        ('max-pods = "5"', {"maxPods": 5}),
        ('max-pods = "x"', {"maxPods": "x"}),
        ('shutdown-grace-period = "5s"', {"shutdownGracePeriod": "5s"}),
    ],
)  # fmt: skip
def test_values_of_every_type_are_read(settings: str, expected: dict[str, Any]) -> None:
    (config,) = read_kubelet_configs(InputFile("a.toml", f"[settings.kubernetes]\n{settings}\n".encode()))
    assert {field: config.document.get(field) for field in expected} == expected


def test_what_is_no_toml_is_an_error() -> None:
    with pytest.raises(InputError, match="not valid TOML"):
        read_kubelet_configs(InputFile("a.toml", b"settings = ["))
