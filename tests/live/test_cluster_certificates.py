"""Certificates that a real cluster issues: bootstrap with a token, renewal, and the serving certificate."""

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster_bench import ClusterBench, cluster_bench
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS
from tests.support.real_scheduler import running_component

from nodewright.agent.member.certificates import certificate_facts

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(
        not all(os.access(f"{ASSETS}/{name}", os.X_OK) for name in ("kube-controller-manager", "kubectl")),
        reason="KUBEBUILDER_ASSETS has no kube-controller-manager and kubectl",
    ),
]
BOOTSTRAPPERS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: create}
subjects: [{kind: Group, name: system:bootstrappers, apiGroup: rbac.authorization.k8s.io}]
roleRef: {kind: ClusterRole, name: system:node-bootstrapper, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approve}
subjects: [{kind: Group, name: system:bootstrappers, apiGroup: rbac.authorization.k8s.io}]
roleRef: {kind: ClusterRole, name: system:certificates.k8s.io:certificatesigningrequests:nodeclient, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: renew}
subjects: [{kind: Group, name: system:nodes, apiGroup: rbac.authorization.k8s.io}]
roleRef: {kind: ClusterRole, name: system:certificates.k8s.io:certificatesigningrequests:selfnodeclient, apiGroup: rbac.authorization.k8s.io}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def signer(bench: ClusterBench, authority: CertificateAuthority) -> Iterator[None]:
    """The controllers that approve and sign; certificates are valid for a minute, from five minutes ago on."""
    flags = (
        "--controllers=csrapproving,csrsigning",
        f"--cluster-signing-cert-file={authority.file}",
        f"--cluster-signing-key-file={authority.key_file}",
        "--cluster-signing-duration=60s",
        "--leader-elect=false",
        "--secure-port=0",
    )
    folder = bench.agent.folder / "controllers"
    folder.mkdir(exist_ok=True)
    with running_component(bench.server, folder, "kube-controller-manager", *flags):
        yield


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ClusterBench, CertificateAuthority]]:
    authority = CertificateAuthority(tmp_path, "authority")
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"port: {free_port()}\nhealthzPort: 0\nevictionHard: {{}}\nnodeStatusUpdateFrequency: 1s\n"
        f"rotateCertificates: true\nserverTLSBootstrap: true\n"
        f"authentication: {{x509: {{clientCAFile: {authority.file}}}}}\n"
    )
    options = ("--config", f"{tmp_path}/kubelet.yaml", "--kubelet-api")
    flags = (f"--client-ca-file={authority.file}",)
    with cluster_bench(tmp_path, *options, server_options=flags, bootstraps=True) as bench:
        bench.kubectl_output("apply", "--validate=false", "-f", "-", stdin=BOOTSTRAPPERS)
        yield bench, authority


def serial(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_an_agent_with_a_bootstrap_token_gets_its_certificates_and_renews_them(
    cluster: tuple[ClusterBench, CertificateAuthority],
) -> None:
    bench, authority = cluster
    pki = bench.agent.folder / "root" / "pki"
    bench.agent.start()
    bench.wait_until(lambda: len(bench.signing_requests()) == 1)
    # No controller approves yet: an agent that is killed finds its request again.
    bench.agent.kill()
    bench.agent.start()
    bench.wait_until(bench.agent.is_ready)
    time.sleep(1)
    assert len(bench.signing_requests()) == 1
    with signer(bench, authority):
        bench.wait_until(bench.is_ready)
        client = pki / "kubelet-client-current.pem"
        facts = certificate_facts(client.read_bytes())
        assert facts is not None
        assert facts.subject.common_name == "system:node:worker"
        assert facts.subject.organizations == ("system:nodes",)
        assert client.stat().st_mode & 0o777 == 0o600
        # It is renewed by itself, before it expires; the node stays ready.
        first = client.read_bytes()
        bench.wait_until(lambda: client.read_bytes() != first)
        # The serving certificate waits for an administrator.
        assert not (pki / "kubelet-server-current.pem").exists()
        bench.wait_until(lambda: len(bench.signing_requests("kubernetes.io/kubelet-serving")) == 1)
        (serving,) = bench.signing_requests("kubernetes.io/kubelet-serving")
        bench.kubectl_output("certificate", "approve", serving)
        bench.wait_until(lambda: bool(serial(pki / "kubelet-server-current.pem")))
    status = bench.node_status()
    address = next(entry["address"] for entry in status["addresses"] if entry["type"] == "InternalIP")
    port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    context = ssl.create_default_context(cafile=authority.file)
    deadline, presented = time.monotonic() + 10, ""
    while not presented:
        try:
            with (
                socket.create_connection((address, port), 10) as connection,
                context.wrap_socket(connection, server_hostname=address) as secure,
            ):
                presented = ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"")
        except ssl.SSLError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert certificate_facts(presented.encode()) == certificate_facts(
        (pki / "kubelet-server-current.pem").read_bytes()
    )


def test_an_agent_without_a_signer_goes_on_with_an_expired_certificate_and_recovers(
    cluster: tuple[ClusterBench, CertificateAuthority],
) -> None:
    bench, authority = cluster
    bench.agent.start()
    with signer(bench, authority):
        bench.wait_until(bench.is_ready)
        bench.create_pod("web", "while :; do sleep 0.1; done")
        bench.wait_until(lambda: bench.phase("web") == "Running")
    container = bench.pod("web")["status"]["containerStatuses"][0]["containerID"]
    client = bench.agent.folder / "root/pki/kubelet-client-current.pem"
    facts = certificate_facts(client.read_bytes())
    assert facts is not None
    # Without a signer the certificate expires.
    time.sleep(max(0.0, facts.not_after_s - time.time()) + 2)
    bench.agent.kill()
    bench.agent.start()
    bench.wait_until(bench.agent.is_ready)
    with signer(bench, authority):
        bench.wait_until(lambda: certificate_facts(client.read_bytes()) != facts)
        assert bench.pod("web")["status"]["containerStatuses"][0]["containerID"] == container
        bench.delete_pod("web")
        bench.wait_until(lambda: not bench.pod("web"))
