"""TLS as specified by a KubeletConfiguration."""

import os
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from nodewright.cluster.serving.key_pair import KeyPair
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_OLD_VERSIONS = ("VersionTLS10", "VersionTLS11")
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_TLS_13_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Always available; they cannot be selected."""


RELOAD_PERIOD_S = 1.0


def serving_tls(pair: KeyPair, client_ca_file: Path | None) -> "ReloadingTLS":
    """TLS of a server that no KubeletConfiguration describes: its pair, and the authorities of its clients, if any.

    Errors: as `server_context`.
    """
    config = KubeletConfiguration()
    if client_ca_file is not None:
        x509 = replace(config.authentication.x509, client_ca_file=str(client_ca_file))
        config = replace(config, authentication=replace(config.authentication, x509=x509))
    return ReloadingTLS(pair, config)


class ReloadingTLS:
    """TLS with files that may be replaced while in use: new connections use the new contents.

    Follows: v1.36, kubelet/certificate/kubelet.go, NewKubeletServerCertificateDynamicFileManager; client authorities
        as by apiserver/pkg/server/dynamiccertificates.
    Departs: the files are checked at new connections, once a second at most; the kubelet checks once a minute.
    """

    def __init__(
        self,
        pair: KeyPair,
        config: KubeletConfiguration,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_issued: bool = False,
    ) -> None:
        """``is_issued``: the cluster issues the certificate; until then, every handshake fails.

        Errors: as `server_context`.
        """
        self._pair, self._config, self._clock, self._is_issued = pair, config, clock, is_issued
        authorities = config.authentication.x509.client_ca_file
        self._files = [
            os.fspath(pair.certificate),
            os.fspath(pair.key),
            *([authorities] if authorities else []),
        ]
        self._checked_s, self._versions = clock(), self._file_versions()
        self._context = self._new_context()

    def context(self, log: Callable[[str], None]) -> ssl.SSLContext:
        """The context for a new connection; an invalid change is logged once, and the previous context is kept."""
        now_s = self._clock()
        if now_s - self._checked_s >= RELOAD_PERIOD_S:
            self._checked_s = now_s
            versions = self._file_versions()
            if versions != self._versions:
                self._versions = versions
                try:
                    self._context = self._new_context()
                except InputError as error:
                    log(f"the previous certificates stay in use: {error}")
        return self._context

    def _new_context(self) -> ssl.SSLContext:
        is_absent = self._is_issued and not self._pair.certificate.exists()
        return server_context(None if is_absent else self._pair, self._config)

    def _file_versions(self) -> list[tuple[int, int, int] | None]:
        return [_file_version(file) for file in self._files]


def _file_version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - called for connections
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def server_context(pair: KeyPair | None, config: KubeletConfiguration) -> ssl.SSLContext:
    """The TLS context with this key pair, without which no handshake succeeds, and with client certificates of `authentication.x509.clientCAFile`.

    Errors:  InputError with all faults of the files and names.
    Follows: v1.36, cmd/kubelet/app/server.go, InitializeTLS; component-base/cli/flag/ciphersuites_flag.go.
    Departs: TLS 1.0 and 1.1, and suites without forward secrecy, are not supported; a client certificate that the
        authorities have not signed ends the handshake, where the kubelet answers 401, or uses the token: Python
        cannot accept a certificate without verifying it.
    """
    faults = [*_version_faults(config.tls_min_version), *_suite_faults(config.tls_cipher_suites)]
    if faults:
        raise InputError(faults)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.tls_min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    suites = [_SUITES[suite] for suite in config.tls_cipher_suites if suite in _SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    if pair is not None:
        try:
            context.load_cert_chain(pair.certificate, pair.key)
        except (OSError, ssl.SSLError) as error:
            faults.append(_file_fault("tlsCertFile", f"{pair.certificate}, {pair.key}", error))
    authorities = config.authentication.x509.client_ca_file
    if authorities:
        try:
            context.load_verify_locations(cafile=authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            faults.append(_file_fault("authentication.x509.clientCAFile", authorities, error))
    if faults:
        raise InputError(faults)
    return context


def _file_fault(path: str, value: str, error: OSError) -> Fault:
    rule = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        detail = (error.reason or rule).lower().replace("_", " ")
        rule = f"must be a matching certificate and key in PEM ({detail})"
    return Fault(path=path, value=value, rule=rule)


def _version_faults(version: str) -> list[Fault]:
    if version in _VERSIONS:
        return []
    known = ", ".join(name for name in _VERSIONS if name)
    rule = (
        f"TLS 1.0 and 1.1 are not supported; must be one of {known}"
        if version in _OLD_VERSIONS
        else f"must be one of {known}"
    )
    return [Fault(path="tlsMinVersion", value=version, rule=rule)]


def _suite_faults(suites: Sequence[str]) -> list[Fault]:
    known = ", ".join(_SUITES)
    return [
        Fault(path=f"tlsCipherSuites[{index}]", value=suite, rule=f"must be one of {known}")
        for index, suite in enumerate(suites)
        if suite not in _SUITES and suite not in _TLS_13_SUITES
    ]
