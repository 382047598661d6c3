import pytest

from nodewright.engine.core.cpu.cpu_state import PodCPURequests
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.cpu import PodSharedPoolEmpty
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.testing.objects import a_pod, container, pod, sidecar

MANAGED = CPUGates(pod_level_managers=True)


def alike(name: str, amounts: str) -> Container:
    return container(name, amounts, amounts)


def alike_sidecar(name: str, amounts: str) -> Container:
    return sidecar(name, amounts, amounts)


def first(wanted: Pod, gates: CPUGates = MANAGED) -> int:
    return PodCPURequests.of(wanted, gates).container_cpus(wanted.spec.containers[0])


def pod_level(cpu: str, *containers: str, sidecars: tuple[str, ...] = (), init: tuple[str, ...] = ()) -> Pod:
    """A pod with CPUs as a whole; each container by its CPUs, or empty: it shares."""

    def spec(name: str, cpus: str, **more: str) -> dict[str, object]:
        amounts = {"cpu": cpus, "memory": "1Gi"} if cpus else {}
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **more}

    whole = {"cpu": cpu, "memory": "8Gi"}
    return a_pod(
        containers=[spec(f"app{index}", each) for index, each in enumerate(containers)],
        initContainers=[
            *(spec(f"side{index}", each, restartPolicy="Always") for index, each in enumerate(sidecars)),
            *(spec(f"init{index}", each) for index, each in enumerate(init)),
        ],
        resources={"requests": whole, "limits": whole},
    )


@pytest.mark.parametrize(
    ("requests", "limits", "cpus"),
    [
        ("2/1Gi", "2/1Gi", 2),
        ("2.0/1Gi", "2.0/1Gi", 2),
        ("2000m/1Gi", "2000m/1Gi", 2),
        ("1500m/1Gi", "1500m/1Gi", 0),
        ("1.5/1Gi", "1.5/1Gi", 0),
        ("1001m/1Gi", "1001m/1Gi", 0),
        ("2/1Gi", "3/1Gi", 0),  # Burstable
        ("", "2/1Gi", 0),  # the API server would have filled in the requests
        ("", "", 0),
    ],
)
def test_only_whole_cpus_of_guaranteed_pods_are_exclusive(requests: str, limits: str, cpus: int) -> None:
    assert first(pod(container("app", requests, limits)), CPUGates()) == cpus


def test_a_container_without_cpus_of_its_own_makes_all_others_share() -> None:
    assert first(pod(alike("app", "2/1Gi"), container("side"))) == 0


def test_a_pod_needs_its_app_containers_and_sidecars_at_once() -> None:
    wanted = pod(
        alike("app", "2/1Gi"),
        alike("app2", "1/1Gi"),
        init=(alike("early", "4/1Gi"), alike_sidecar("side", "2/1Gi"), alike("late", "2500m/1Gi")),
    )
    assert PodCPURequests.of(wanted, CPUGates()).pod_cpus() == 5


def test_an_init_container_counts_with_the_sidecars_before_it() -> None:
    wanted = pod(alike("app", "1/1Gi"), init=(alike_sidecar("side", "2/1Gi"), alike("late", "3/1Gi")))
    assert PodCPURequests.of(wanted, CPUGates()).pod_cpus() == 5


def test_a_pod_that_is_not_guaranteed_needs_none() -> None:
    assert PodCPURequests.of(pod(container("app", "2/1Gi")), MANAGED).pod_cpus() == 0


def test_pod_level_resources_count_when_the_gate_is_on() -> None:
    wanted = pod_level("6", "2", "")
    assert PodCPURequests.of(wanted, MANAGED).pod_cpus() == 6
    assert [PodCPURequests.of(wanted, MANAGED).container_cpus(each) for each in wanted.spec.containers] == [
        2,
        0,
    ]
    assert PodCPURequests.of(wanted, CPUGates()).pod_cpus() == 2
    assert PodCPURequests.of(wanted, CPUGates()).is_ignored
    assert not PodCPURequests.of(wanted, MANAGED).is_ignored


def test_a_pod_level_request_that_is_not_whole_gets_none() -> None:
    assert PodCPURequests.of(pod_level("2500m", "1"), MANAGED).pod_cpus() == 0


def test_without_the_gate_for_pod_level_resources_the_containers_make_the_class() -> None:
    closed = CPUGates(pod_level_resources=False, qos=PodLevelQOS.NEVER)
    assert first(pod_level("6", "2"), closed) == 2
    assert first(pod_level("6", "2", ""), closed) == 0


@pytest.mark.parametrize(
    ("requests", "limits", "cpus"),
    [("2/1Gi", "2/1Gi", 2), ("2/1Gi", "3/1Gi", 0), ("2/1Gi", "2/2Gi", 0), ("cpu=2", "cpu=2", 0)],
)
def test_under_pod_level_resources_a_container_must_be_guaranteed_by_itself(
    requests: str, limits: str, cpus: int
) -> None:
    outer = pod_level("6", "1")
    inner = container("app", requests, limits)
    assert PodCPURequests.of(outer, MANAGED).container_cpus(inner) == cpus


def test_something_must_be_left_to_those_who_share() -> None:
    def fault(wanted: Pod) -> PodSharedPoolEmpty | None:
        return PodCPURequests.of(wanted, MANAGED).shared_pool_fault()

    assert fault(pod_level("4", "2", "")) is None
    assert fault(pod_level("4", "2", "2")) is None
    assert fault(pod_level("4", "4", "")) == PodSharedPoolEmpty(pod_cpus=4, exclusive=4, init=False)
    assert fault(pod_level("4", "2", sidecars=("2", ""))) == PodSharedPoolEmpty(
        pod_cpus=4, exclusive=4, init=False
    )
    assert fault(pod_level("4", "", sidecars=("4",), init=("",))) == PodSharedPoolEmpty(
        pod_cpus=4, exclusive=4, init=True
    )
    assert fault(pod_level("4", "1", sidecars=("3",), init=("4", ""))) is None
