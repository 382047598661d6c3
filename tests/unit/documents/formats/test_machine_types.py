"""Virtual machines that name an instance type and a preference."""

from typing import Any

import pytest
import yaml

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.model.errors import InputError

TYPE: dict[str, Any] = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {"name": "large"},
    "spec": {"cpu": {"guest": 4}, "memory": {"guest": "8Gi"}},
}


def machine(
    domain: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **names: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "lab"},
        "spec": {**names, "template": {"spec": {"domain": domain or {}, **(spec or {})}}},
    }


def of_type(**spec: Any) -> dict[str, Any]:
    return {**TYPE, "spec": {**TYPE["spec"], **spec}}


def preference(**spec: Any) -> dict[str, Any]:
    return {**TYPE, "kind": "VirtualMachineClusterPreference", "metadata": {"name": "p"}, "spec": spec}


def loaded(*values: dict[str, Any]) -> LoadedWorkloads:
    loader = ManifestLoader("default")
    loader.add_file(InputFile("vms.yaml", yaml.safe_dump_all(values).encode()))
    return loader.result()


def compute(*values: dict[str, Any]) -> dict[str, dict[str, str]]:
    (workload,) = loaded(*values).workloads
    (container,) = (each for each in workload.pod.spec.containers if each.name == "compute")
    resources = container.resources
    return {
        side: {name: str(amount) for name, amount in amounts.items()}
        for side, amounts in (("requests", resources.requests), ("limits", resources.limits))
    }


@pytest.mark.parametrize("is_before", [True, False])
def test_a_machine_has_the_cpus_and_memory_of_its_type_wherever_that_stands(*, is_before: bool) -> None:
    named = machine(instancetype={"name": "large"})
    values = (TYPE, named) if is_before else (named, TYPE)
    assert compute(*values) == compute(machine({"cpu": {"sockets": 4}, "memory": {"guest": "8Gi"}}))


@pytest.mark.parametrize(
    ("spec", "domain"),
    [
        (
            {"cpu": {"guest": 4, "dedicatedCPUPlacement": True, "isolateEmulatorThread": True}},
            {"cpu": {"sockets": 4, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
        ),
        (
            {"memory": {"guest": "8Gi", "hugepages": {"pageSize": "2Mi"}}},
            {"memory": {"guest": "8Gi", "hugepages": {"pageSize": "2Mi"}}},
        ),
        (
            {"memory": {"guest": "8Gi", "overcommitPercent": 25}},
            {"memory": {"guest": "8Gi"}, "resources": {"requests": {"memory": "6Gi"}}},
        ),
        (
            {"gpus": [{"name": "g", "deviceName": "nvidia.com/A2"}]},
            {"devices": {"gpus": [{"name": "g", "deviceName": "nvidia.com/A2"}]}},
        ),
    ],
)
def test_fields_of_the_type_are_those_of_the_machine(spec: dict[str, Any], domain: dict[str, Any]) -> None:
    plain = {"cpu": {"sockets": 4}, "memory": {"guest": "8Gi"}}
    assert compute(of_type(**spec), machine(instancetype={"name": "large"})) == compute(
        machine({**plain, **domain})
    )


def test_a_type_of_the_namespace_is_another_one() -> None:
    own = {**of_type(cpu={"guest": 2}), "kind": "VirtualMachineInstancetype"}
    own["metadata"] = {"name": "large", "namespace": "lab"}
    reference = {"name": "large", "kind": "virtualmachineinstancetype"}
    assert compute(TYPE, own, machine(instancetype=reference))["requests"]["cpu"] == "200m"
    elsewhere = {**own, "metadata": {"name": "large", "namespace": "other"}}
    assert not loaded(TYPE, elsewhere, machine(instancetype=reference)).workloads


def test_a_preference_counts_where_the_machine_sets_nothing() -> None:
    prefers = preference(
        devices={"preferredAutoattachGraphicsDevice": False, "preferredInterfaceModel": "e1000"},
        preferredTerminationGracePeriodSeconds=90,
        annotations={"a": "b"},
    )
    named = {"instancetype": {"name": "large"}, "preference": {"name": "p"}}
    devices = {"interfaces": [{"name": "n"}]}
    (workload,) = loaded(TYPE, prefers, machine({"devices": devices}, **named)).workloads
    assert workload.pod.spec.termination_grace_period_seconds == 120
    assert workload.pod.metadata.annotations == {"a": "b"}
    requests = compute(TYPE, prefers, machine({"devices": devices}, **named))["requests"]
    assert "devices.kubevirt.io/vhost-net" not in requests
    assert (
        requests
        == compute(
            machine(
                {
                    "cpu": {"sockets": 4},
                    "memory": {"guest": "8Gi"},
                    "devices": {
                        "autoattachGraphicsDevice": False,
                        "interfaces": [{"name": "n", "model": "e1000"}],
                    },
                }
            )
        )["requests"]
    )
    kept = machine({"devices": {"autoattachGraphicsDevice": True}}, **named)
    assert compute(TYPE, prefers, kept) == compute(
        machine(
            {
                "cpu": {"sockets": 4},
                "memory": {"guest": "8Gi"},
                "devices": {"autoattachGraphicsDevice": True},
            }
        )
    )


def test_what_is_not_among_the_files_is_named() -> None:
    read = loaded(machine(instancetype={"name": "huge"}))
    assert not read.workloads
    (warning,) = read.warnings
    assert (
        "those of the instance type huge, which is not among the files, so its pod is not judged" in warning
    )
    read = loaded(TYPE, machine(instancetype={"name": "large"}, preference={"name": "p"}))
    assert len(read.workloads) == 1
    assert read.warnings == (
        "VirtualMachine lab/vm: the preference p is not among the files, so it does not count",
    )
    assert "an instance type, so" in loaded(machine(instancetype={"inferFromVolume": "disk"})).warnings[0]


@pytest.mark.parametrize(
    ("domain", "path"),
    [
        ({"cpu": {"cores": 2}}, "cpu.cores"),
        ({"memory": {"guest": "1Gi"}}, "memory.guest"),
        ({"resources": {"requests": {"memory": "1Gi"}}}, "resources.requests.memory"),
        ({"resources": {"limits": {"cpu": "1"}}}, "resources.limits.cpu"),
    ],
)
def test_what_the_type_sets_the_machine_must_not_set(domain: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        loaded(TYPE, machine(domain, instancetype={"name": "large"}))
    (fault,) = error.value.faults
    assert (fault.path, fault.rule) == (
        f"spec.template.spec.domain.{path}",
        "is set by the instance type as well",
    )


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"cpu": {"guest": 0}}, "spec.cpu.guest"),
        ({"cpu": "many"}, "spec.cpu.guest"),
        ({"memory": {"guest": "8Gib"}}, "spec.memory.guest"),
        ({"memory": {"guest": "8Gi", "overcommitPercent": 101}}, "spec.memory.overcommitPercent"),
    ],
)
def test_a_faulty_type_is_reported_with_the_path(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        loaded(of_type(**spec))
    assert [fault.path for fault in error.value.faults] == [path]


def test_a_pool_of_machines_names_its_type_for_all() -> None:
    pool = machine(instancetype={"name": "large"})
    pool = {
        **pool,
        "apiVersion": "pool.kubevirt.io/v1alpha1",
        "kind": "VirtualMachinePool",
        "spec": {"replicas": 2, "virtualMachineTemplate": {"spec": pool["spec"]}},
    }
    (workload,) = loaded(pool, TYPE).workloads
    assert workload.replicas == 2
    assert compute(pool, TYPE)["requests"]["cpu"] == "400m"
