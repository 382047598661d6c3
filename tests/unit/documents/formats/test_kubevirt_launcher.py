"""Virtual machines of KubeVirt as the launcher pods that run them."""

from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.terminal import NO
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Container, Pod

KVM, TUN, VHOST = (f"devices.kubevirt.io/{name}" for name in ("kvm", "tun", "vhost-net"))
MIB = 1 << 20
BASE_MIB = 240 + 8 + 8 + 32
"""Processes, one vCPU, the I/O thread and the graphics device."""


def loaded(domain: Any, *, kind: str = "VirtualMachineInstance", **fields: Any) -> LoadedWorkloads:
    spec = {"domain": domain, **fields}
    if kind != "VirtualMachineInstance":
        spec = {
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
            **({"replicas": 3} if "Set" in kind else {}),
        }
    version = "kubevirt.io/v1"
    if kind == "VirtualMachinePool":
        version, spec = "pool.kubevirt.io/v1beta1", {"replicas": 2, "virtualMachineTemplate": {"spec": spec}}
    value = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "vm", "namespace": "lab"},
        "spec": spec,
    }
    loader = ManifestLoader("default")
    loader.add_file(InputFile("vm.yaml", yaml.safe_dump(value).encode()))
    return loader.result()


def launcher(domain: Any, **fields: Any) -> Pod:
    (workload,) = loaded(domain, **fields).workloads
    return workload.pod


def compute(domain: Any, **fields: Any) -> Container:
    container = launcher(domain, **fields).spec.containers[0]
    assert container.name == "compute"
    return container


def written(container: Container) -> dict[str, str]:
    return {name: str(amount) for name, amount in container.resources.requests.items()}


def memory_mib(container: Container) -> float:
    return container.resources.requests["memory"].value() / MIB


@pytest.mark.parametrize(
    "kind",
    ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"],
)
def test_each_kind_has_the_same_launcher(kind: str) -> None:
    (workload,) = loaded({"memory": {"guest": "1Gi"}}, kind=kind).workloads
    replicas = {"VirtualMachineInstanceReplicaSet": 3, "VirtualMachinePool": 2}
    assert (workload.kind, workload.replicas) == (kind, replicas.get(kind, 1))
    assert memory_mib(workload.pod.spec.containers[0]) == 1024 + BASE_MIB


def test_a_small_guest_requests_a_tenth_of_its_cpus_and_the_memory_beside_it() -> None:
    container = compute({"cpu": {"cores": 2}, "memory": {"guest": "2Gi"}})
    expected = {
        "cpu": "200m",
        "memory": f"{2048 + BASE_MIB + 8}Mi",
        "ephemeral-storage": "50M",
        KVM: "1",
        TUN: "1",
        VHOST: "1",
    }
    assert written(container) == expected


def test_written_requests_count_pagetables_of_a_512th() -> None:
    container = compute({"resources": {"requests": {"memory": "1Gi", "cpu": "1500m"}}})
    assert written(container)["cpu"] == "1500m"
    pagetables = (1073742 * 1000) // 512
    assert container.resources.requests["memory"].value() == (1 << 30) + pagetables + (BASE_MIB + 8) * MIB


def test_dedicated_cpus_make_the_launcher_guaranteed() -> None:
    domain = {
        "cpu": {"sockets": 2, "cores": 2, "threads": 2, "dedicatedCpuPlacement": True},
        "memory": {"guest": "4Gi"},
    }
    pod = launcher(domain)
    assert qos_class(pod) is QOSClass.GUARANTEED
    assert written(pod.spec.containers[0])["cpu"] == "8"
    assert memory_mib(pod.spec.containers[0]) == 4096 + BASE_MIB + 56 + 100


@pytest.mark.parametrize(
    ("vcpus", "annotations", "cpus"),
    [
        (3, {}, "4"),
        (4, {}, "5"),
        (4, {"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""}, "6"),
        (3, {"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""}, "4"),
    ],
)
def test_an_isolated_emulator_thread_has_a_cpu_of_its_own(
    vcpus: int, annotations: dict[str, str], cpus: str
) -> None:
    cpu = {"cores": vcpus, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
    value = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"domain": {"cpu": cpu, "memory": {"guest": "1Gi"}}},
    }
    loader = ManifestLoader("default")
    loader.add_file(InputFile("vm.yaml", yaml.safe_dump(value).encode()))
    assert written(loader.result().workloads[0].pod.spec.containers[0])["cpu"] == cpus


def test_the_memory_of_a_guest_with_huge_pages_is_only_what_is_beside_it() -> None:
    container = compute({"memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}}})
    assert written(container)["hugepages-2Mi"] == "2Gi"
    assert memory_mib(container) == BASE_MIB


@pytest.mark.parametrize(
    ("domain", "fields", "added_mib"),
    [
        ({"devices": {"autoattachGraphicsDevice": False}}, {}, -32),
        ({"devices": {"gpus": [{"name": "a", "deviceName": "nvidia.com/A10"}]}}, {}, 1024),
        ({"devices": {"interfaces": [{"name": "a", "sriov": {}}]}}, {}, 1024),
        ({"devices": {"tpm": {}}}, {}, 53),
        ({"launchSecurity": {"sev": {}}}, {}, 256),
        ({"devices": {"downwardMetrics": {}}}, {}, 1),
        ({}, {"architecture": "arm64"}, 128),
        ({}, {"readinessProbe": {"exec": {"command": ["true"]}}}, 110),
    ],
)
def test_devices_have_memory_beside_the_guest(
    domain: dict[str, Any], fields: dict[str, Any], added_mib: int
) -> None:
    container = compute({"memory": {"guest": "1Gi"}, **domain}, **fields)
    assert memory_mib(container) == 1024 + BASE_MIB + added_mib


def test_devices_of_plugins_are_requested() -> None:
    devices = {
        "hostDevices": [{"name": name, "deviceName": "intel.com/qat"} for name in "ab"],
        "autoattachPodInterface": False,
    }
    amounts = written(compute({"memory": {"guest": "1Gi"}, "devices": devices}))
    assert amounts["intel.com/qat"] == "2"
    assert TUN not in amounts


def test_container_disks_and_the_console_have_containers() -> None:
    volumes = [{"name": "root", "containerDisk": {"image": "disk"}}]
    spec = launcher({"memory": {"guest": "1Gi"}}, volumes=volumes).spec
    assert [container.name for container in spec.containers] == ["compute", "volumeroot"]
    names = ["guest-console-log", "container-disk-binary", "volumeroot-init"]
    assert [container.name for container in spec.init_containers] == names
    assert spec.init_containers[0].is_sidecar


def test_a_machine_of_an_instance_type_is_named_as_not_judged() -> None:
    spec = {"instancetype": {"name": "u1.medium"}, "template": {"spec": {"domain": {}}}}
    value = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm"},
        "spec": spec,
    }
    loader = ManifestLoader("default")
    loader.add_file(InputFile("vm.yaml", yaml.safe_dump(value).encode()))
    result = loader.result()
    assert not result.workloads
    assert "its CPUs and memory are those of the instance type u1.medium" in result.warnings[0]


@pytest.mark.parametrize(
    ("domain", "kind", "fault"),
    [
        ({"memory": {"guest": "2Gib"}}, "VirtualMachine", "spec.template.spec.domain.memory.guest"),
        (
            {"cpu": {"cores": "two"}},
            "VirtualMachineInstance",
            "vm.yaml.*: spec.domain.cpu.cores.*must be 0 to 4096",
        ),
        (
            {"resources": {"requests": {"memory": "-1Gi"}}},
            "VirtualMachine",
            r"domain.resources.requests\[memory\].*greater than or equal to 0",
        ),
        ([], "VirtualMachineInstance", "spec.domain.*must be an object"),
        (
            {"devices": {"gpus": {}}},
            "VirtualMachineInstance",
            "domain.devices.gpus.*must be a list of objects",
        ),
    ],
)
def test_faults_have_their_place(domain: Any, kind: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        loaded(domain, kind=kind)


def test_admit_judges_the_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    devices = [f"--device={name}=1000" for name in (KVM, TUN, VHOST)]
    assert (
        run(["admit", "--shape", "vm-4", *devices, "-f", "examples/other-systems/virtual-machine.yaml"]) == NO
    )
    assert "telephony/pbx-0   Guaranteed   refused   OutOfcpu" in capsys.readouterr().out
