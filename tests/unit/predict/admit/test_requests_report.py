"""Reports of effective requests, as text and as documents."""

import json

import pytest
import yaml
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.engine.core.requests.effective_resources import RequestOptions
from nodewright.engine.core.requests.resource_breakdown import pod_resource_breakdown
from nodewright.model.kubernetes.objects import (
    ContainerStatus,
    EphemeralContainer,
    NodeAllocatableMapping,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodStatus,
    ResourceRequirements,
)
from nodewright.predict.admit.requests_report import (
    RequestsEntry,
    requests_item,
    requests_names,
    requests_text,
    requests_wide,
)
from nodewright.testing.objects import amounts, container, pod, sidecar

GI = 2**30
NODE_CRITICAL = "system-node-critical"
CLAIMS = RequestOptions(use_dra_node_allocatable_resource_claim_status=True)


def entry(pod: Pod, kind: str = "Pod", replicas: int | None = 1) -> RequestsEntry:
    workload = Workload(
        source="pods.yaml",
        api_version="v1" if kind == "Pod" else "apps/v1",
        kind=kind,
        name="web",
        namespace="default",
        replicas=replicas,
        pod=pod,
    )
    return RequestsEntry(workload=workload, pod_requests=pod_resource_breakdown(pod, 10 * GI))


def text(pod: Pod, width: int = 200) -> str:
    return requests_text([entry(pod)], "the memory of a test", width=width)


def with_pod_level(pod: Pod, requests: str = "", limits: str = "") -> Pod:
    level = ResourceRequirements(requests=amounts(requests), limits=amounts(limits))
    return replace(pod, spec=replace(pod.spec, resources=level))


MAIN = container("main", "1/1Gi", "1/1Gi")

SENTENCES = {
    "cpu request 1: container main": pod(container("main", "cpu=1")),
    "cpu request 250m: overhead": pod(container("main"), overhead="cpu=250m"),
    "cpu request 1250m: container main": pod(container("main", "cpu=1"), overhead="cpu=250m"),
    "1 + 250m overhead of the runtime class": pod(container("main", "cpu=1"), overhead="cpu=250m"),
    "1 a + 2 b": pod(container("a", "cpu=1"), container("b", "cpu=2")),
    "while init container i runs": pod(container("a", "cpu=1"), init=(container("i", "cpu=2"),)),
    "container a needs 1": pod(container("a", "cpu=1"), init=(container("i", "cpu=2"),)),
    "init container i needs 1": pod(container("a", "cpu=2"), init=(container("i", "cpu=1"),)),
    "when sidecar s has started": pod(container("a", "cpu=-1"), init=(sidecar("s", "cpu=1"),)),
    "cpu request 5: the pod level": with_pod_level(pod(container("a", "cpu=1")), "cpu=5"),
    "instead of the containers' 1: 1 a": with_pod_level(pod(container("a", "cpu=1")), "cpu=5"),
    "container b and container c have no limit, so the sum does not bound the pod": pod(
        MAIN, container("b"), container("c")
    ),
    "init container i has no limit, so the sum does not bound the pod": pod(MAIN, init=(container("i"),)),
    "rounded up to thousandths: requests cpu 1u to 1m": pod(container("a", "cpu=1u")),
    "overhead: rounded up to thousandths: overhead cpu 1u to 1m": pod(MAIN, overhead="cpu=1u"),
    "the pod level: limit of 2Mi hugepages-2Mi, from the containers' limits": with_pod_level(
        pod(container("a", "", "hugepages-2Mi=2Mi")), "cpu=1"
    ),
    "pod-level resources are set, but not for cpu or memory": with_pod_level(
        pod(container("a")), "hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"
    ),
    "requests equal limits for cpu and memory at the pod level": with_pod_level(pod(MAIN), "1/1", "1/1"),
    "not Guaranteed: init container i has no limit on cpu and memory": pod(MAIN, init=(container("i"),)),
    "as recorded in the pod status": replace(pod(MAIN), status=PodStatus(qos_class="Burstable")),
    "1000 - 1000 x 10Gi / 10Gi = 0; at least 3": pod(container("a", "memory=10Gi")),
    "(0 + 1Gi)": with_pod_level(pod(container("a")), "memory=1Gi"),
    "no requests and no limits": pod(container("a")),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_each_derivation_has_its_sentence(sentence: str) -> None:
    assert sentence in text(SENTENCES[sentence])


def test_a_node_critical_pod_has_a_fixed_score() -> None:
    critical = pod(container("a"))
    critical = replace(
        critical, spec=replace(critical.spec, priority=2 * 10**9, priority_class_name=NODE_CRITICAL)
    )
    assert "oom_score_adj -997 for every container: the pod is of class system-node-critical" in text(
        critical
    )


def test_a_resize_in_progress_is_shown() -> None:
    bigger = ContainerStatus(name="main", resources=ResourceRequirements(requests=amounts("cpu=3")))
    resizing = replace(pod(MAIN), status=PodStatus(container_statuses=(bigger,)))
    assert "resize in progress, so the container status counts too: main" in text(resizing)
    level = with_pod_level(pod(MAIN), "cpu=1", "cpu=1")
    status = PodStatus(resources=ResourceRequirements(requests=amounts("cpu=3")))
    assert "resize in progress, so the container status counts too: the pod level" in text(
        replace(level, status=status)
    )


def test_resource_claims_are_shown() -> None:
    mapping = (NodeAllocatableMapping(name="cpu", quantity=amounts("cpu=2")["cpu"]),)
    claims = (NodeAllocatableResourceClaimStatus(resource_claim_name="fpga", mapping=mapping),)
    claiming = replace(
        pod(container("a"), overhead="cpu=1"),
        status=PodStatus(node_allocatable_resource_claim_statuses=claims),
    )
    breakdown = pod_resource_breakdown(claiming, GI, CLAIMS)
    claimed = replace(entry(claiming), pod_requests=breakdown)
    output = requests_text([claimed], "m", width=100)
    assert "cpu request 3: resource claims" in output
    assert "2 resource claim fpga + 1 overhead" in output
    (derivation,) = requests_item(claimed).derivation.requests
    assert derivation.claims
    assert [claim.name for claim in derivation.claims] == ["fpga"]


def test_a_pod_without_containers_has_a_report() -> None:
    assert text(pod()).endswith("no container has a request or limit for cpu or memory\n")


def test_requests_and_limits_with_different_derivations_are_shown_separately() -> None:
    output = text(pod(container("a", "cpu=1 memory=512Mi", "memory=1Gi")))
    assert "cpu request 1: container a\n" in output
    assert "memory limit 1Gi: container a\n" in output


def test_lines_do_not_exceed_the_width() -> None:
    names = [f"container-with-a-rather-long-name-{number}" for number in range(4)]
    long = pod(*(container(name, "100m/1Gi", "200m/2Gi") for name in names), init=(container("i", "2/1Gi"),))
    assert max(map(len, text(long, width=80).splitlines())) <= 80


def test_a_template_shows_its_replicas() -> None:
    output = requests_text([entry(pod(MAIN), "Deployment", 3)], "m")
    assert output.startswith("Deployment default/web, each pod, 3 replicas (pods.yaml)\n")
    assert requests_text([entry(pod(MAIN), "DaemonSet", None)], "m").startswith(
        "DaemonSet default/web, each pod ("
    )


def test_wide_output_has_one_line_for_each_pod_and_names_are_kubectls() -> None:
    entries = [entry(pod(container("a", "cpu=1 nvidia.com/gpu=2"))), entry(pod(), "DaemonSet", None)]
    _, first, second = requests_wide(entries).splitlines()
    assert "nvidia.com/gpu=2" in first
    assert second.split()[:4] == ["default", "daemonset.apps/web", "-", "BestEffort"]
    assert requests_names(entries) == "pod/web\ndaemonset.apps/web\n"


def test_json_and_yaml_have_the_same_content() -> None:
    web = with_pod_level(pod(MAIN, init=(sidecar("s"),), overhead="cpu=1"), "cpu=2")
    report = requests_item(entry(web))
    assert json.loads(as_json(report)) == yaml.safe_load(as_yaml(report))
    item = json.loads(as_json(report))
    assert item["requests"]["cpu"] == "3"
    assert item["containers"][1]["role"] == "sidecar"
    cpu = item["derivation"]["requests"][0]
    assert (cpu["podLevel"], cpu["overhead"]) == ("2", "1")


def test_the_ephemeral_containers_of_a_live_pod_have_their_role() -> None:
    web = pod(MAIN)
    debugged = replace(web, spec=replace(web.spec, ephemeral_containers=(EphemeralContainer(name="debug"),)))
    item = json.loads(as_json(requests_item(entry(debugged))))
    assert [row["role"] for row in item["containers"]] == ["container", "ephemeralContainer"]
