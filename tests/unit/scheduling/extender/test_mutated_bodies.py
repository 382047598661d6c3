"""Every route of the extender answers every malformed body with 4xx and one line."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.mutated_documents import POD, mutated
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.cluster.serving.middleware import Message
from nodewright.cluster.tasks.timing import HostClock
from nodewright.scheduling.extender.extender_routes import ExtenderRoutes, extender_application
from nodewright.scheduling.extender.pod_reviews import ClusterReviews, ReviewRoutes

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "r",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": POD,
    },
}
NODE = {"metadata": {"name": "n1"}}
BODIES: dict[str, list[dict[str, Any]]] = {
    "/filter": [{"Pod": POD, "NodeNames": ["n1"]}, {"Pod": POD, "Nodes": {"items": [NODE]}}],
    "/prioritize": [{"Pod": POD, "NodeNames": ["n1"]}],
    "/preempt": [
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}},
        {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [NODE], "NumPDBViolations": 1}}},
    ],
    "/bind": [{"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"}],
    "/v1/admit": [{"pod": POD, "nodes": ["n1"]}],
    "/v1/review-pods": [REVIEW],
}


def application() -> Any:
    clock = HostClock()
    bench = ExtenderBench(BindingCluster(clock), clock)
    bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
    bench.put_export("n1", a_profile())
    reviews = ReviewRoutes(ClusterReviews(bench.service).refusals, denies=True)
    routes = ExtenderRoutes(bench.service, binds=True)
    return extender_application((*routes.call_routes(), *reviews.authorized_routes()))


async def answer(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer; what is not answered is raised."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "state": {}}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("path", BODIES)
def test_malformed_bodies_are_answered_with_4xx_and_one_line(path: str) -> None:
    async def scenario() -> None:
        app, statuses = application(), set[int]()
        for document in BODIES[path]:
            assert (await answer(app, path, msgspec.json.encode(document)))[0] == 200
            for body in mutated(document):
                status, content = await answer(app, path, body)
                statuses.add(status)
                assert status == 200 or 400 <= status < 500, body[:500]
                if status != 200:
                    assert b"\n" not in content
        assert statuses & {400, 422}

    asyncio.run(scenario())
