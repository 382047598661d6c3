"""Commands about a cluster of five nodes with rejected pods, on a real API server: as on the fake one, and as from files."""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.support.real_api_server import RealAPIServer, needs_real, real_api_server
from tests.support.real_shop_cluster import define_kind, machine_address, populated
from tests.support.shop_cluster import fake_shop_cluster

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

pytestmark = [
    pytest.mark.live,
    needs_real(),
    pytest.mark.skipif(not machine_address(), reason="API servers proxy no kubelet on a loopback address"),
]
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "ask-the-cluster.md"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
PODS = "examples/admission/pods.yaml"
COMMANDS = [
    "explain pod web-0",
    "explain pod/report -n jobs",
    "explain pod/importer -n jobs",
    "explain pod/unschedulable",
    "explain pod/resize-deferred",
    "explain pod/forwarder-0 -n telco",
    f"admit -f {PODS}",
    "admit deploy/api",
    f"admit -f {PODS} --node node/worker-3",
    "evict node/worker-2",
    "rehearse node/worker-3",
    "upgrade node/worker-1 --from 1.34",
    "audit node/worker-3",
    "lint -A",
    "fleet",
    "requests pods -A -o name",
    "fit",
    f"fit -f {PODS}",
    f"fit -f {PODS} --node node/worker-3",
    "drain node/worker-1",
]


class Clusters(NamedTuple):
    """The real server, and the kubeconfigs of it and of the fake one."""

    server: RealAPIServer
    real: Path
    fake: Path


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("cluster")
    with real_api_server(folder, checks_rights=True) as server, populated(server, folder):
        real = folder / "real"
        real.write_text(json.dumps(kubeconfig(server, folder)))
        with fake_shop_cluster(folder) as (_, fake):
            yield Clusters(server, real, fake)


def kubeconfig(server: RealAPIServer, folder: Path) -> dict[str, Any]:
    certificate = str(folder / "certificates" / "apiserver.crt")
    cluster = {
        "server": f"https://127.0.0.1:{server.port}",
        "certificate-authority": certificate,
        "tls-server-name": "kubernetes",
    }
    context = {"cluster": "shop", "user": "shop", "namespace": "shop"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shop",
        "clusters": [{"name": "shop", "cluster": cluster}],
        "users": [{"name": "shop", "user": {"token": "admin"}}],
        "contexts": [{"name": "shop", "context": context}],
    }


def answer(
    kubeconfig: Path, line: str, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """The exit code, the output and the messages of a command of the plugin."""
    os.environ["KUBECONFIG"] = str(kubeconfig)
    try:
        code = run([*line.split(), *words], prog_name="kubectl nodewright")
    finally:
        del os.environ["KUBECONFIG"]
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def without_uids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_real_api_server_gives_the_answers_of_the_fake_one(
    line: str, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output, messages = answer(clusters.real, line, capsys)
    assert code in (YES, NO), messages
    fake_code, fake_output, _ = answer(clusters.fake, line, capsys)
    assert without_uids(output) == without_uids(fake_output), messages
    assert code == fake_code


@pytest.mark.parametrize("node", ["worker-1", "worker-3", "worker-4"])
def test_a_node_answers_as_its_captured_file(
    node: str, clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document, _ = answer(clusters.real, f"node capture node/{node}", capsys)
    file = tmp_path / "node.yaml"
    file.write_text(document)
    for line in (
        f"admit -f {PODS} --node",
        "node show --node",
        "rehearse --node",
        "upgrade --from 1.34 --node",
    ):
        code, output, _ = answer(clusters.real, line, capsys, f"node/{node}")
        assert (code, output) == answer(clusters.real, line, capsys, str(file))[:2], line


def test_quotas_have_what_the_api_server_counts(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output, _ = answer(clusters.real, "quota -n shop -o json", capsys)
    assert code == YES
    (quota,) = json.loads(output)["namespaces"][0]["quotas"]
    assert quota["hard"] == {"pods": "10", "requests.cpu": "40"}


def roles() -> list[dict[str, Any]]:
    """The ClusterRoles of the guide."""
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    return list(yaml.safe_load_all(block))


def test_the_roles_of_the_guide_suffice(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    for role in roles():
        assert clusters.server.request("POST", ROLES, role).code == 201
    bind(clusters.server, "nodewright-explain")
    code, _, messages = answer(clusters.real, "explain pod web-0", capsys, "--as", "reader")
    assert code in (YES, NO)
    assert 'User "reader" cannot get resource "nodes/proxy"' in messages
    assert "assumed: the kubelet's defaults" in messages
    code, _, messages = answer(clusters.real, "evict node/worker-2", capsys, "--as", "reader")
    assert code == ERROR
    assert "stats/summary: 403 Forbidden" in messages
    for name in ("nodewright-kubelets", "nodewright-lint"):
        bind(clusters.server, name)
    for line in COMMANDS:
        expected = answer(clusters.real, line, capsys)
        assert answer(clusters.real, line, capsys, "--as", "reader")[:2] == expected[:2], line


OTHER_KINDS = {
    "ClusterQueue": "clusterqueues",
    "ResourceFlavor": "resourceflavors",
    "NodePool": "nodepools",
    "NodeClaim": "nodeclaims",
    "EC2NodeClass": "ec2nodeclasses",
}


def test_queues_and_pools_are_read_in_the_version_that_the_server_prefers(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    server, folder = clusters.server, GUIDE.parents[2] / "examples" / "other-systems"
    files = [folder / name for name in ("queue.yaml", "karpenter.yaml")]
    objects = [each for file in files for each in yaml.safe_load_all(file.read_text("utf-8"))]
    versions = {each["kind"]: each["apiVersion"] for each in objects} | {"NodeClaim": "karpenter.sh/v1"}
    code, without, _ = answer(clusters.real, "fit -o json", capsys)
    paths = {kind: define_kind(server, versions[kind], kind, plural) for kind, plural in OTHER_KINDS.items()}
    for each in objects:
        assert server.create(paths[each["kind"]], each).code == 201
    try:
        assert answer(clusters.real, "fit -o json", capsys)[0] == code == YES
        code, output, _ = answer(clusters.real, "fit -o json", capsys)
        report = json.loads(output)
        assert {row["queue"] for row in report["queues"]} == {"research"}
        assert report["groups"] == json.loads(without)["groups"]
        code, output, _ = answer(clusters.real, "fit --nodes karpenter -o json", capsys)
        of_files = answer(clusters.real, f"fit --nodes {files[1]} -o json", capsys)
        assert json.loads(output)["groups"] == json.loads(of_files[1])["groups"]
        code, _, messages = answer(clusters.real, "fit --nodes karpenter", capsys, "--as", "reader")
        assert code == ERROR
        assert 'User "reader" cannot list resource "nodepools"' in messages
    finally:
        for each in objects:
            server.request("DELETE", f"{paths[each['kind']]}/{each['metadata']['name']}")


def bind(server: RealAPIServer, role: str) -> None:
    binding = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    }
    assert server.request("POST", BINDINGS, binding).code == 201
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    rules = next(each["rules"] for each in roles() if each["metadata"]["name"] == role)
    group, resource = rules[-1]["apiGroups"][0], rules[-1]["resources"][0]
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": rules[-1]["verbs"][-1], "group": group, "resource": resource}
    user = {"user": "reader", "groups": ["system:authenticated"]}
    review = {"spec": user | {"resourceAttributes": attributes | {"subresource": subresource}}}
    for _ in range(300):  # the authorizer reads bindings from a cache
        if server.request("POST", path, review).body["status"]["allowed"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{role} has no effect")


def test_bad_clusters_are_one_line(
    clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(clusters.real.read_text())
    expired = tmp_path / "expired"
    config["users"][0]["user"]["token"] = "expired"  # noqa: S105 - not a secret
    expired.write_text(json.dumps(config))
    for file, words, text in (
        (
            clusters.real,
            ["explain", "pod/gone"],
            "pod/gone: the cluster has no such object in namespace shop",
        ),
        (clusters.real, ["rehearse", "node/gone"], "node/gone: the cluster has no such node"),
        (clusters.real, ["admit", "-f", PODS, "--context", "nowhere"], "nowhere"),
        (expired, ["admit", "-f", PODS], "401 Unauthorized"),
        (tmp_path / "missing", ["admit", "-f", PODS], "no such file"),
    ):
        code, output, messages = answer(file, "", capsys, *words)
        assert code == ERROR
        assert not output
        assert text in messages
        assert messages.count("\n") == 1
