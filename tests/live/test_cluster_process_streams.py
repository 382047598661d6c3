"""`kubectl exec`, `attach`, `cp` and `logs` through a real API server, on plain processes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.test_cluster_streams import FOREVER, free_port, terminal_is_resized
from tests.support.cluster_bench import ClusterBench, cluster_bench
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(
        not os.access(f"{ASSETS}/kubectl", os.X_OK),
        reason="KUBEBUILDER_ASSETS names no kube-apiserver and kubectl",
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    folder = tmp_path_factory.mktemp("cluster")
    authority = CertificateAuthority(folder, "authority")
    client = authority.client_certificate("kube-apiserver-kubelet-client", "system:masters")
    (folder / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"port: {free_port()}\nhealthzPort: 0\nevictionHard: {{}}\n"
        f"authentication: {{x509: {{clientCAFile: {authority.file}}}}}\n"
    )
    flags = (
        f"--kubelet-client-certificate={client.certificate}",
        f"--kubelet-client-key={client.key}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    options = ("--config", f"{folder}/kubelet.yaml", "--kubelet-api")
    with cluster_bench(folder, *options, server_options=flags) as bench:
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        bench.create_pod("web", FOREVER)
        bench.wait_until(lambda: bench.phase("web") == "Running")
        yield bench


def kubectl(cluster: ClusterBench, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        cluster.kubectl(*words), input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def test_exec_carries_all_streams_and_the_exit_code(cluster: ClusterBench) -> None:
    assert cluster.node_status()["declaredFeatures"] == ["ExtendWebSocketsToKubelet"]
    script = "read line; echo got $line; echo bad >&2; cat; exit 7"
    ran = kubectl(cluster, "exec", "-i", "web", "--", "sh", "-c", script, stdin="hello\nrest")
    assert (ran.returncode, ran.stdout) == (7, "got hello\nrest"), (ran.stderr, cluster.agent.log_tail())
    assert ran.stderr.startswith("bad\n")


def test_a_terminal_is_resized(cluster: ClusterBench) -> None:
    terminal_is_resized(cluster)


def test_files_are_copied_in_and_out(cluster: ClusterBench, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(os.urandom(3 << 20))
    cluster.kubectl_output("cp", f"{tmp_path}/in", f"web:{tmp_path}/copied")
    cluster.kubectl_output("cp", f"web:{tmp_path}/copied", f"{tmp_path}/out")
    assert (tmp_path / "in").read_bytes() == (tmp_path / "out").read_bytes()


def test_attach_shows_the_output_until_the_end(cluster: ClusterBench) -> None:
    cluster.create_pod("talker", "sleep 2; echo said; sleep 1; echo more", restartPolicy="Never")
    cluster.wait_until(lambda: cluster.phase("talker") == "Running")
    ran = kubectl(cluster, "attach", "talker")
    assert ran.stdout.endswith("said\nmore\n"), (ran.stdout, ran.stderr)
    cluster.delete_pod("talker")


def test_what_needs_another_protocol_says_so(cluster: ClusterBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
    ran = kubectl(cluster, "exec", "web", "--", "id")
    assert ran.returncode == 1
    assert "need a WebSocket" in ran.stderr
    ran = kubectl(cluster, "port-forward", "pod/web", "0:80")
    assert "no network of its own" in ran.stderr + ran.stdout
