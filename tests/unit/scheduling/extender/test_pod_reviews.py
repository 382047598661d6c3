"""The webhook beside the extender: it knows the tracked nodes, and stays silent about what is not known."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from starlette.requests import Request

from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.pod_review import finding_text
from nodewright.scheduling.extender.extender_service import ExtenderService
from nodewright.scheduling.extender.pod_reviews import MAX_REVIEW_BYTES, ClusterReviews, ReviewRoutes
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod


def test_findings_follow_the_nodes_of_the_cluster() -> None:
    cluster = TrackedCluster()
    service = SimpleNamespace(cluster=cluster, is_ready=True)
    reviews, pod = ClusterReviews(cast("ExtenderService", service)), a_pod("web", "7/1Gi")
    assert not finding_text(reviews.refusals(pod))
    cluster.put_export("a", a_profile(1, 4), generation=1, now_s=0.0)
    assert finding_text(reviews.refusals(pod)).startswith("the only node cannot ever hold this pod")
    cluster.put_prediction("b", a_profile(2, 4), note="")
    assert not finding_text(reviews.refusals(pod))
    cluster.remove_node("b")
    assert finding_text(reviews.refusals(pod))
    cluster.mark_unknown("a", "no export")
    assert not finding_text(reviews.refusals(pod))
    cluster.put_export("a", a_profile(1, 4), generation=2, now_s=0.0)
    service.is_ready = False
    assert not finding_text(reviews.refusals(pod))


def answer(body: bytes, *, denies: bool) -> tuple[int, Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)

    async def refusals(_pod: Pod) -> Counter[str]:
        return Counter({"too large": 1})

    response = asyncio.run(ReviewRoutes(refusals, denies=denies).review(request))
    return response.status_code, msgspec.json.decode(bytes(response.body))


def test_the_route_answers_reviews_and_refuses_what_is_none() -> None:
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    request = {"uid": "7", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = msgspec.json.encode(review)
    assert answer(body, denies=False)[1]["response"]["warnings"][0].endswith(": too large")
    assert not answer(body, denies=True)[1]["response"]["allowed"]
    assert answer(b"{}", denies=True)[0] == 400
    assert answer(b" " * (MAX_REVIEW_BYTES + 1), denies=True)[0] == 413
