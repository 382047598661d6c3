"""Workloads of manifests and a real kube-controller-manager: the same pods, as many, with the same specs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.real_api_server import RealAPIServer, needs_real, real_api_server
from tests.support.real_scheduler import running_component

from nodewright.documents.formats.inventory import inventory_from_bytes
from nodewright.engine.admission.api_server.apply import ApplyResult, apply
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod

pytestmark = [
    pytest.mark.live,
    needs_real("kube-controller-manager"),
]
NODES = 2
CONTROLLERS = "deployment,replicaset,statefulset,job,cronjob,daemonset,replicationcontroller"
KINDS = {
    "Deployment": "apis/apps/v1",
    "ReplicaSet": "apis/apps/v1",
    "StatefulSet": "apis/apps/v1",
    "DaemonSet": "apis/apps/v1",
    "Job": "apis/batch/v1",
}
PATHS = {**KINDS, "CronJob": "apis/batch/v1"}
_SETTLED_S, _MOST_S = 1.5, 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAPIServer]:
    folder = Path(tmp_path_factory.mktemp("controllers"))
    flags = ("--leader-elect=false", "--secure-port=0", f"--controllers={CONTROLLERS}")
    with (
        real_api_server(folder) as client,
        running_component(client, folder, "kube-controller-manager", *flags),
    ):
        for number in range(NODES):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
            assert client.create("/api/v1/nodes", node).code == 201
            client.request("PATCH", f"/api/v1/nodes/n{number}", {"spec": {"taints": []}})
        yield client


def odd_objects(draw: Random) -> list[dict[str, Any]]:
    """A limit range, a quota, or neither, and a workload."""
    return [*odd_policies(draw), odd_workload(draw)]


def odd_policies(draw: Random) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    if draw.random() < 0.5:
        item = {"type": "Container", "default": {"memory": draw.choice(("128Mi", "1Gi"))}}
        item |= draw.choice(({}, {"max": {"cpu": "1"}}, {"defaultRequest": {"cpu": "100m"}}))
        objects.append(
            {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [item]}}
        )
    if draw.random() < 0.5:
        key, amount = draw.choice(
            (("pods", "2"), ("requests.memory", "300Mi"), ("count/replicasets.apps", "0"))
        )
        hard = {key: amount}
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": hard},
        }
        objects.append(quota)
    return objects


def odd_workload(draw: Random, kind: str = "") -> dict[str, Any]:
    kind = kind or draw.choice(sorted(KINDS))
    requests = draw.choice(({}, {"memory": "128Mi"}, {"memory": "256Mi", "cpu": "1.00005"}, {"cpu": "2"}))
    limits = draw.choice(({}, {}, {"memory": "512Mi"}, {"cpu": "3"}))
    main: dict[str, Any] = {
        "name": "main",
        "image": "a",
        "resources": {"requests": requests, "limits": limits},
    }
    pod: dict[str, Any] = {"containers": [main]}
    if draw.random() < 0.3:
        pod["tolerations"] = [{"key": "a", "operator": "Exists"}]
    if draw.random() < 0.2:
        pod["hostNetwork"] = True
    if draw.random() < 0.2:
        main["volumeDevices"] = [{"name": "data", "devicePath": draw.choice(("/dev/a", "/dev/../a"))}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    spec: dict[str, Any] = {"template": template, "selector": {"matchLabels": {"app": "web"}}}
    if kind == "Job":
        pod["restartPolicy"] = "Never"
        spec = {"template": template, "parallelism": draw.choice((1, 3)), "completions": draw.choice((2, 5))}
    elif kind != "DaemonSet":
        spec["replicas"] = draw.choice((0, 1, 3))
    if kind == "StatefulSet":
        spec |= {"serviceName": "web", "podManagementPolicy": draw.choice(("Parallel", "OrderedReady"))}
    version = KINDS[kind].removeprefix("apis/")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def odd_cron_job(draw: Random) -> dict[str, Any]:
    """A CronJob that is due every minute and has one Job, as long as that Job's pods do not end."""
    job = odd_workload(draw, "Job")
    job["spec"]["completionMode"] = draw.choice(("Indexed", "NonIndexed"))
    spec = {"schedule": "* * * * *", "suspend": draw.random() < 0.2, "jobTemplate": {"spec": job["spec"]}}
    return {**job, "kind": "CronJob", "spec": {**spec, "concurrencyPolicy": "Forbid"}}


def create_all(server: RealAPIServer, objects: list[dict[str, Any]], namespace: str) -> str:
    """Creates the objects; the error for the workload, which comes last."""
    meta = {"name": namespace}
    assert (
        server.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}).code
        == 201
    )
    *policies, workload = objects
    for item in policies:
        path = f"/api/v1/namespaces/{namespace}/{item['kind'].lower()}s"
        assert server.create(path, item).code == 201
        if item["kind"] == "ResourceQuota":
            hard = item["spec"]["hard"]
            status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            server.request("PATCH", f"{path}/q/status", {"status": status})
    time.sleep(0.5)  # the admission plugins read policies from a cache
    kind = workload["kind"]
    return server.create(f"/{PATHS[kind]}/namespaces/{namespace}/{kind.lower()}s", workload).message


def settled_pods(server: RealAPIServer, namespace: str, wanted: int) -> list[dict[str, Any]]:
    """The pods once there are as many as wanted and no more come; pods are made ready, so that others follow."""
    begun, seen, changed = time.monotonic(), -1, time.monotonic()
    while True:
        now = time.monotonic()
        pods: list[dict[str, Any]] = server.request("GET", f"/api/v1/namespaces/{namespace}/pods").body[
            "items"
        ]
        if len(pods) != seen:
            seen, changed = len(pods), now
            ready = [{"type": "Ready", "status": "True"}]
            for pod in pods:
                path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
                server.request("PATCH", path, {"status": {"phase": "Running", "conditions": ready}})
        if (seen >= wanted and now - changed > _SETTLED_S) or now - begun > _MOST_S:
            return pods
        time.sleep(0.1)


def comparable_spec(spec: dict[str, Any]) -> str:
    """The parts of a spec that controllers and the API server add to or change."""
    tolerations = sorted(
        [str(each.get(field, "")) for field in ("key", "operator", "effect", "tolerationSeconds")]
        for each in spec.get("tolerations", ())
    )
    resources = [container.get("resources", {}) for container in spec["containers"]]
    return json.dumps(
        [
            resources,
            tolerations,
            spec.get("priority"),
            [volume["name"] for volume in spec.get("volumes", ())],
        ],
        sort_keys=True,
    )


def own_spec(pod: Pod) -> dict[str, Any]:
    def amounts(values: Any) -> dict[str, str]:
        return {name: str(amount) for name, amount in values.items()}

    sides = ("limits", "requests")
    return {
        "containers": [
            {
                "resources": {
                    side: amounts(getattr(container.resources, side))
                    for side in sides
                    if getattr(container.resources, side)
                }
            }
            for container in pod.spec.containers
        ],
        "tolerations": [
            {"key": each.key, "operator": each.operator, "effect": each.effect}
            | ({} if each.toleration_seconds is None else {"tolerationSeconds": each.toleration_seconds})
            for each in pod.spec.tolerations
        ],
        "priority": pod.spec.priority,
        "volumes": list(pod.spec.volumes),
    }


def own_pods(result: ApplyResult) -> tuple[int, Pod | None, str]:
    """The number of pods, the first of them, and its name."""
    pods = [outcome for outcome in result.outcomes if str(outcome.resource) == "pods"]
    first = next((outcome for outcome in pods if outcome.admitted), None)
    count = sum(outcome.admitted for outcome in pods)
    return (
        (0, None, "")
        if first is None or not isinstance(first.object, Pod)
        else (count, first.object, first.name)
    )


@pytest.mark.parametrize("seed", range(12))
def test_workloads_have_the_same_pods(seed: int, server: RealAPIServer) -> None:

    objects = odd_objects(Random(seed))
    namespace = f"workloads-{seed}"
    error = create_all(server, objects, namespace)
    text = "\n---\n".join(map(json.dumps, objects)).encode()
    try:
        manifests = [each.manifest for each in inventory_from_bytes(text, "f.yaml").objects]
    except InputError:
        assert "is invalid" in error
        return
    result = apply(manifests, ExpansionOptions(nodes=NODES))
    count, first, name = own_pods(result)
    pods = settled_pods(server, namespace, count)
    assert (len(pods), bool(error)) == (count, "is invalid" in error or "is forbidden" in error)
    if first is not None:
        assert {comparable_spec(pod["spec"]) for pod in pods} == {comparable_spec(own_spec(first))}
        stem = name.rpartition("-")[0]
        assert all(pod["metadata"]["name"].startswith(stem) for pod in pods)
        if objects[-1]["kind"] == "StatefulSet":
            spec, names = objects[-1]["spec"], {pod["metadata"]["name"] for pod in pods}
            # Pods that are created in parallel race for what a quota leaves.
            may_race = spec["podManagementPolicy"] == "Parallel"
            possible = {f"web-{at}" for at in range(spec["replicas"] if may_race else count)}
            assert names <= possible if may_race else names == possible


CRON_JOBS = 10


def test_cron_jobs_have_the_same_pods(server: RealAPIServer) -> None:
    """Many at once, because each is due at the next minute."""
    drawn = {
        f"cron-{seed}": [*odd_policies(Random(seed)), odd_cron_job(Random(seed))] for seed in range(CRON_JOBS)
    }
    wanted: dict[str, tuple[int, Pod | None, str]] = {}
    for namespace, objects in drawn.items():
        error = create_all(server, objects, namespace)
        text = "\n---\n".join(map(json.dumps, objects)).encode()
        try:
            manifests = [each.manifest for each in inventory_from_bytes(text, "f.yaml").objects]
        except InputError:
            assert "is invalid" in error
            continue
        assert not error
        wanted[namespace] = own_pods(apply(manifests, ExpansionOptions(nodes=NODES)))
    # Those that are suspended never run, and those whose pods are refused have a Job without pods.
    due = [name for name in wanted if not drawn[name][-1]["spec"]["suspend"]]
    deadline = time.monotonic() + _DUE_S
    while not all(_jobs(server, name) for name in due):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    for namespace, (count, first, _) in wanted.items():
        server.request(
            "PATCH", f"/apis/batch/v1/namespaces/{namespace}/cronjobs/web", {"spec": {"suspend": True}}
        )
        pods = settled_pods(server, namespace, count)
        assert len(_jobs(server, namespace)) == (namespace in due), namespace
        assert len(pods) == count, namespace
        if first is not None:
            assert {comparable_spec(pod["spec"]) for pod in pods} == {comparable_spec(own_spec(first))}


_DUE_S = 180
"""They are due within a minute; a loaded machine takes longer to create their Jobs."""


def _jobs(server: RealAPIServer, namespace: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = server.request("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs").body[
        "items"
    ]
    return jobs
