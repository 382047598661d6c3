"""OpenShift's PerformanceProfile as a KubeletConfiguration and kernel arguments."""

from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.formats.documents import InputFile, read_file
from nodewright.documents.output.terminal import ERROR
from nodewright.documents.profiles.kubelet_config_files import load_kubelet_config
from nodewright.documents.profiles.kubelet_forms import WrittenKubeletConfig, read_kubelet_configs
from nodewright.model.errors import InputError

EXAMPLE = "examples/kubelet/forms/performance-profile.yaml"
CPUS = {"reserved": "0-1", "isolated": "2-7"}


def rendered(spec: dict[str, Any], annotations: dict[str, str] | None = None) -> WrittenKubeletConfig:
    value = {
        "apiVersion": "performance.openshift.io/v2",
        "kind": "PerformanceProfile",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": spec,
    }
    (config,) = read_kubelet_configs(InputFile("profile.yaml", yaml.safe_dump(value).encode()))
    return config


def test_the_example_is_what_the_operator_renders() -> None:
    (config,) = read_kubelet_configs(read_file(EXAMPLE))
    expected = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0-1,32-33",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2648Mi"}}],
        "kubeReserved": {"memory": "500Mi"},
        "systemReserved": {"cpu": "500m", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        "maxPods": 120,
    }
    assert {name: config.document.get(name) for name in expected} == expected
    assert config.kernel_arguments == (
        "nohz=on", "rcu_nocbs=2-31,34-63", "nohz_full=2-31,34-63", "skew_tick=1", "isolcpus=managed_irq,2-31,34-63",
        "nosoftlockup", "rcutree.kthread_prio=11", "default_hugepagesz=1G", "hugepagesz=1G", "hugepages=16",
        "hugepagesz=2M", "hugepages=0", "vfio_pci.enable_sriov=1",
    )  # fmt: skip


def test_the_kubelet_starts_with_it_and_its_kernel_arguments_are_named() -> None:
    loaded = load_kubelet_config(EXAMPLE)
    assert loaded.config.topology_manager_policy == "single-numa-node"
    assert "read as OpenShift PerformanceProfile; kernel arguments: nohz=on" in loaded.warnings[0]


@pytest.mark.parametrize(
    ("policy", "memory_manager", "options"),
    [
        (None, None, None),
        ("none", None, None),
        ("best-effort", None, None),
        ("restricted", "Static", None),
        ("single-numa-node", "Static", {"full-pcpus-only": "true"}),
    ],
)
def test_the_topology_policy_decides_about_the_other_managers(
    policy: str | None, memory_manager: str | None, options: dict[str, str] | None
) -> None:
    document = rendered({"cpu": CPUS, **({"numa": {"topologyPolicy": policy}} if policy else {})}).document
    assert document["topologyManagerPolicy"] == (policy or "best-effort")
    assert document.get("memoryManagerPolicy") == memory_manager
    assert document.get("cpuManagerPolicyOptions") == options


def test_shared_and_packet_processing_cpus_are_reserved_too() -> None:
    cpu = {"reserved": "0", "isolated": "4-7", "shared": "1", "ovsDpdk": "2-3"}
    config = rendered({"cpu": cpu, "workloadHints": {"mixedCpus": True, "realTime": False}})
    assert config.document["reservedSystemCPUs"] == "0-3"
    assert "irqaffinity=0-1,4-7" in config.kernel_arguments
    assert "nosoftlockup" not in config.kernel_arguments
    assert rendered({"cpu": cpu}).document["reservedSystemCPUs"] == "0,2-3"


def test_isolated_cpus_that_are_not_balanced_leave_the_scheduling_domains() -> None:
    config = rendered({"cpu": {**CPUS, "balanceIsolated": False}})
    assert "isolcpus=domain,managed_irq,2-7" in config.kernel_arguments


def test_an_option_of_the_annotation_stays() -> None:
    snippet = '{"cpuManagerPolicyOptions": {"full-pcpus-only": "false"}, "evictionHard": {"memory.available": "1Gi"}}'
    spec = {"cpu": CPUS, "numa": {"topologyPolicy": "single-numa-node"}}
    document = rendered(spec, {"kubeletconfig.experimental": snippet}).document
    assert document["cpuManagerPolicyOptions"] == {"full-pcpus-only": "false"}
    assert document["evictionHard"]["memory.available"] == "1Gi"
    assert document["reservedMemory"][0]["limits"] == {"memory": "2024Mi"}


@pytest.mark.parametrize(
    ("spec", "annotations", "fault"),
    [
        ({}, {}, "spec.cpu.reserved: must be set"),
        ({"cpu": {"reserved": "0-1", "isolated": "1-7"}}, {}, "spec.cpu.isolated: .*has CPUs of reserved: 1"),
        ({"cpu": {"reserved": "0-x", "isolated": "1"}}, {}, "spec.cpu.reserved"),
        ({"cpu": CPUS, "numa": {"topologyPolicy": "single"}}, {}, "spec.numa.topologyPolicy: .*must be one of none"),
        ({"cpu": CPUS, "numa": []}, {}, "spec.numa: .*must be an object"),
        ({"cpu": CPUS, "hugepages": {"pages": [{"size": "1G", "count": 4}]}}, {}, "spec.hugepages.defaultHugepagesSize: must be set"),
        ({"cpu": CPUS, "hugepages": {"defaultHugepagesSize": "1G", "pages": [{"size": "3G"}]}}, {}, r"spec.hugepages.pages\[0\]: .*must have a size"),
        ({"cpu": CPUS, "additionalKernelArgs": "a"}, {}, "spec.additionalKernelArgs: .*must be a list"),
        ({"cpu": CPUS}, {"kubeletconfig.experimental": "{"}, r"metadata.annotations\[kubeletconfig.experimental\]: .*must be a KubeletConfiguration"),
        ({"cpu": CPUS}, {"kubeletconfig.experimental": '{"kubeReserved": 1}'}, "must be a KubeletConfiguration"),
        ({"cpu": CPUS, "numa": {"topologyPolicy": "restricted"}}, {"kubeletconfig.experimental": '{"kubeReserved": {"memory": "1Q"}}'}, r"kubeReserved\[memory\]"),
    ],
)  # fmt: skip
def test_faults_have_their_place(spec: dict[str, Any], annotations: dict[str, str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        rendered(spec, annotations)


def test_lint_checks_what_is_rendered(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", EXAMPLE]) != ERROR
    broken = tmp_path / "profile.yaml"
    broken.write_text(
        "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: a}\nspec: {cpu: {reserved: 0}}\n"
    )
    assert run(["lint", str(broken)]) == ERROR
    assert "spec.cpu.isolated: must be set" in capsys.readouterr().err
