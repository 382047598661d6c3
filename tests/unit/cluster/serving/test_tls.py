"""TLS as a KubeletConfiguration wants it, and what it cannot want."""

import ssl
from pathlib import Path

import pytest

from nodewright.cluster.serving.key_pair import KeyPair, make_key_pair
from nodewright.cluster.serving.tls import server_context
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_configuration import (
    KubeletAuthentication,
    KubeletConfiguration,
    KubeletX509Authentication,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    folder = tmp_path_factory.mktemp("pki")
    make_key_pair(folder, "node1", [])
    return KeyPair(folder / "kubelet.crt", folder / "kubelet.key")


def test_tls_1_2_is_the_default_minimum(pair: KeyPair) -> None:
    assert server_context(pair, KubeletConfiguration()).minimum_version is ssl.TLSVersion.TLSv1_2
    newer = server_context(pair, KubeletConfiguration(tls_min_version="VersionTLS13"))
    assert newer.minimum_version is ssl.TLSVersion.TLSv1_3


def test_suites_are_chosen_by_the_names_of_go(pair: KeyPair) -> None:
    wanted = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    context = server_context(pair, KubeletConfiguration(tls_cipher_suites=wanted))
    of_tls_12 = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"]
    assert of_tls_12 == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


def test_all_faults_of_tls_are_reported_at_once(pair: KeyPair) -> None:
    suites = ("TLS_RSA_WITH_RC4_128_SHA", "TLS_AES_128_GCM_SHA256", "NONE")
    with pytest.raises(InputError) as error:
        server_context(pair, KubeletConfiguration(tls_min_version="VersionTLS10", tls_cipher_suites=suites))
    assert [fault.path for fault in error.value.faults] == [
        "tlsMinVersion",
        "tlsCipherSuites[0]",
        "tlsCipherSuites[2]",
    ]
    assert "TLS 1.0 and 1.1 are not supported" in error.value.faults[0].rule


def test_files_that_are_none_are_named(pair: KeyPair, tmp_path: Path) -> None:
    authorities = KubeletAuthentication(x509=KubeletX509Authentication(client_ca_file=str(tmp_path / "none")))
    with pytest.raises(InputError) as error:
        server_context(
            KeyPair(pair.certificate, pair.certificate), KubeletConfiguration(authentication=authorities)
        )
    assert [fault.path for fault in error.value.faults] == ["tlsCertFile", "authentication.x509.clientCAFile"]
    assert "No such file" in error.value.faults[1].rule
