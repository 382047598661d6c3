"""The resources of pods as a whole: effective ones before they run, then those of their cgroup."""

from typing import Any

import pytest

from nodewright.agent.rules.pod_status import pod_level_status
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod, ResourceList


def a_pod(*containers: dict[str, dict[str, str]], **spec: Any) -> Pod:
    return decode(
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": f"c{n}", "resources": each} for n, each in enumerate(containers)],
                **spec,
            },
        },
        Pod,
    )


def text(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


LIMITED = {
    "requests": {"cpu": "1", "example.com/gpu": "2"},
    "limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"},
}
FREE = {"requests": {"cpu": "100m", "memory": "64Mi"}}
POD_LEVEL = {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}


@pytest.mark.parametrize(
    ("pod", "requests", "limits"),
    [
        (a_pod({}), {}, {}),
        (a_pod(LIMITED), {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}),
        (a_pod(LIMITED, FREE), {"cpu": "1100m", "memory": "64Mi"}, {}),
        (a_pod(FREE, resources=POD_LEVEL), {"cpu": "3", "memory": "64Mi"}, {"memory": "2Gi"}),
    ],
)
def test_a_running_pod_has_the_resources_of_its_cgroup(
    pod: Pod, requests: dict[str, str], limits: dict[str, str]
) -> None:
    status = pod_level_status(pod, is_running=True)
    assert (text(status.requests), text(status.limits)) == (requests, limits)


def test_a_pending_pod_has_all_its_effective_resources() -> None:
    status = pod_level_status(a_pod(LIMITED, FREE), is_running=False)
    assert text(status.requests) == {"cpu": "1100m", "example.com/gpu": "2", "memory": "64Mi"}
    assert text(status.limits) == {"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"}
