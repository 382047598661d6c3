"""With which credentials an agent starts: its kubeconfig's, a certificate of its own, or those for its first request."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.support.fake_clock import FakeClock
from tests.support.signing_cluster import SigningCluster
from tests.unit.agent.assembly.test_agent_node import settings

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.run_agent import cluster_credentials
from nodewright.agent.assembly.tls_bootstrap import node_credentials, serving_subject
from nodewright.agent.member.certificates import CertificateSubject, certificate_facts, new_key
from nodewright.cluster.client.tls import tls_context
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

SERVER = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}


def kubeconfig(path: Path, user: dict[str, Any]) -> str:
    """A kubeconfig of this user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": SERVER}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)


def pair(folder: Path, lifetime_s: float = 1000.0) -> tuple[str, str]:
    """A certificate and its key, which end then."""
    folder.mkdir(exist_ok=True)
    clock = FakeClock(time.time_ns())
    key = new_key()
    public_key = serialization.load_pem_private_key(key, None).public_key()
    name = x509.Name.from_rfc4514_string("CN=system:node:a,O=system:nodes")
    (folder / "c.pem").write_bytes(SigningCluster(clock, lifetime_s).certificate(name, public_key))
    (folder / "k.pem").write_bytes(key)
    return str(folder / "c.pem"), str(folder / "k.pem")


def bootstrapping(folder: Path, **options: Any) -> AgentSettings:
    """The settings of an agent with both files."""
    bootstrap = kubeconfig(folder / "bootstrap", {"token": "t"})
    given = {"kubeconfig": str(folder / "kubeconfig"), "bootstrap_kubeconfig": bootstrap, **options}
    return settings(root_dir=folder / "root", **given)


def test_a_new_agent_writes_a_kubeconfig_for_the_certificate_that_it_requests(tmp_path: Path) -> None:
    given = bootstrapping(tmp_path)
    credentials = node_credentials(given, rotates=True, now_s=time.time())
    assert (credentials.is_issued, credentials.is_renewed, credentials.is_forced) == (True, True, False)
    assert credentials.bootstrap_kubeconfig == given.bootstrap_kubeconfig
    assert not credentials.access.credentials.token
    current = str(tmp_path / "root/pki/kubelet-client-current.pem")
    assert credentials.access.tls.client_certificate.path == current
    written = yaml.safe_load((tmp_path / "kubeconfig").read_text("utf-8"))
    assert written["users"] == [
        {"name": "default-auth", "user": {"client-certificate": current, "client-key": current}}
    ]
    assert written["clusters"] == [{"name": "default-cluster", "cluster": SERVER}]
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("lifetime_s", "is_kept"), [(1000.0, True), (-1.0, False)])
def test_a_kubeconfig_is_kept_as_long_as_its_certificate_is_valid(
    tmp_path: Path, lifetime_s: float, is_kept: bool
) -> None:
    certificate, key = pair(tmp_path / "own", 3000.0)
    path = kubeconfig(tmp_path / "kubeconfig", {"client-certificate": certificate, "client-key": key})
    before = Path(path).read_text("utf-8")
    now_s = time.time() + 3000.0 - lifetime_s
    credentials = node_credentials(bootstrapping(tmp_path), rotates=False, now_s=now_s)
    assert credentials.is_issued is not is_kept
    assert (Path(path).read_text("utf-8") == before) is is_kept


@pytest.mark.parametrize("content", ["", "no yaml: [", "{}"])
def test_a_kubeconfig_that_cannot_be_used_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "kubeconfig").write_text(content, "utf-8")
    assert node_credentials(bootstrapping(tmp_path), rotates=False, now_s=time.time()).is_issued


def test_a_certificate_of_a_kubeconfig_is_taken_over_and_replaced_at_once(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path / "own")
    path = kubeconfig(tmp_path / "kubeconfig", {"client-certificate": certificate, "client-key": key})
    given = settings(root_dir=tmp_path / "root", kubeconfig=path)
    credentials = node_credentials(given, rotates=True, now_s=time.time())
    assert (credentials.is_renewed, credentials.is_forced) == (True, True)
    current = tmp_path / "root/pki/kubelet-client-current.pem"
    assert certificate_facts(current.read_bytes()) == certificate_facts(Path(certificate).read_bytes())
    assert tls_context(credentials.access.tls, None, None).certificates
    # The next start finds its own.
    kubeconfig(tmp_path / "kubeconfig", {"client-certificate": str(current), "client-key": str(current)})
    assert not node_credentials(given, rotates=True, now_s=time.time()).is_forced


def test_users_with_tokens_keep_them(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "kubeconfig", {"token": "t"})
    credentials = cluster_credentials(
        settings(root_dir=tmp_path, kubeconfig=path), KubeletConfiguration(rotate_certificates=True)
    )
    assert credentials is not None
    assert (credentials.is_issued, credentials.access.credentials.token) == (False, "t")


def test_a_bootstrap_kubeconfig_needs_a_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs --kubeconfig"):
        cluster_credentials(settings(root_dir=tmp_path, bootstrap_kubeconfig="/b"), KubeletConfiguration())
    assert cluster_credentials(settings(root_dir=tmp_path), KubeletConfiguration()) is None


@pytest.mark.parametrize(
    ("addresses", "names", "ips"),
    [
        ([("Hostname", "a"), ("InternalIP", "192.0.2.1")], ("a",), ("192.0.2.1",)),
        ([("Hostname", "192.0.2.1"), ("ExternalIP", "fd00::1")], (), ("192.0.2.1", "fd00::1")),
        ([("InternalDNS", "b"), ("ExternalDNS", "a"), ("Hostname", "a")], ("a", "b"), ()),
        ([("InternalIP", "no address"), ("InternalDNS", "a")], ("a",), ()),
        ([("InternalDNS", "192.0.2.1"), ("Hostname", "a")], ("a",), ()),
    ],
)
def test_a_serving_certificate_is_for_the_addresses_of_the_node(
    addresses: list[tuple[str, str]], names: tuple[str, ...], ips: tuple[str, ...]
) -> None:
    entries = [{"type": kind, "address": text} for kind, text in addresses]
    node = {"metadata": {"name": "a"}, "status": {"addresses": entries}}
    assert serving_subject(node) == CertificateSubject("system:node:a", ("system:nodes",), names, ips)


def test_without_addresses_there_is_nothing_to_certify() -> None:
    assert serving_subject({}) is None
    assert (
        serving_subject({"metadata": {"name": "a"}, "status": {"addresses": [{"type": "Hostname"}]}}) is None
    )
