"""The admission policy of `publish` beside a real API server: an exporter writes its annotations, and nothing else."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from tests.support.real_api_server import RealAPIServer, needs_real, real_api_server
from tests.unit.test_own_node_policy import POLICY

from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.scheduling.exporter.export_member import DIGEST_ANNOTATION

pytestmark = [pytest.mark.live, needs_real()]
POLICIES = "/apis/admissionregistration.k8s.io/v1"
EXPORTER = {
    "Impersonate-User": "system:serviceaccount:nodewright:nodewright-export",
    f"Impersonate-Extra-{quote('authentication.kubernetes.io/node-name', safe='')}": "worker-1",
}
REFUSED: dict[str, dict[str, Any]] = {
    "a finalizer": {"metadata": {"finalizers": ["example.com/cloud", "example.com/mine"]}},
    "no finalizer": {"metadata": {"finalizers": None}},
    "an owner": {
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}
    },
    "a label": {"metadata": {"labels": {"zone": "b"}}},
    "another annotation": {"metadata": {"annotations": {"owner": "me"}}},
    "an annotation less": {"metadata": {"annotations": {"owner": None}}},
    "cordoned": {"spec": {"unschedulable": True}},
    "a taint": {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAPIServer]:
    with real_api_server(tmp_path_factory.mktemp("api-server")) as server:
        policy, binding = yaml.safe_load_all(POLICY.read_text("utf-8"))
        for document, kind in (
            (policy, "validatingadmissionpolicies"),
            (binding, "validatingadmissionpolicybindings"),
        ):
            answer = server.create(f"{POLICIES}/{kind}", document)
            assert answer.code == 201, answer.message
        for name in ("worker-1", "worker-2"):
            metadata: dict[str, Any] = {"name": name, "finalizers": ["example.com/cloud"]}
            metadata |= {"labels": {"zone": "a"}, "annotations": {"owner": "team"}}
            assert server.create("/api/v1/nodes", {"metadata": metadata}).code == 201
        server.impersonation = EXPORTER
        deadline_s = time.monotonic() + 60
        while written(server, REFUSED["cordoned"]) != 422:
            assert time.monotonic() < deadline_s, "the policy is not in force"
            time.sleep(0.2)
        yield server


def written(server: RealAPIServer, patch: dict[str, Any], path: str = "worker-1") -> int:
    """The status of the answer to a merge patch of a Node."""
    return server.request("PATCH", f"/api/v1/nodes/{path}?dryRun=All", patch).code


def test_an_exporter_writes_its_annotations(server: RealAPIServer) -> None:
    ours = {DIGEST_ANNOTATION: "sha256:2", EXPORT_URL: "https://10.0.0.1:9453"}
    assert server.request("PATCH", "/api/v1/nodes/worker-1", {"metadata": {"annotations": ours}}).code == 200
    ours[DIGEST_ANNOTATION] = "sha256:3"
    assert written(server, {"metadata": {"annotations": ours}}) == 200
    assert written(server, {"metadata": {"annotations": ours}}, "worker-2") == 422


@pytest.mark.parametrize("change", REFUSED)
def test_everything_else_is_refused(change: str, server: RealAPIServer) -> None:
    assert written(server, REFUSED[change]) == 422


def test_no_node_is_created_or_deleted_and_no_status_written(server: RealAPIServer) -> None:
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert written(server, status, "worker-1/status") == 422
    assert server.create("/api/v1/nodes", {"metadata": {"name": "worker-3"}}, is_dry_run=True).code == 422
    assert server.request("DELETE", "/api/v1/nodes/worker-1?dryRun=All").code == 422
