"""TLS as a KubeletConfiguration wants it."""

import os
import ssl
import time
from collections.abc import Callable, Sequence

from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.world.errors import Fault, InputError
from nodewright.world.key_pair import KeyPair

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
_OF_TLS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""They are always there, and cannot be chosen from."""


LOOK_EVERY_S = 1.0


class LiveTLS:
    """TLS by files that may be replaced while it is in use: whoever comes next gets what they say then.

    Follows: v1.36, kubelet/certificate/kubelet.go, NewKubeletServerCertificateDynamicFileManager; client authorities
        as by apiserver/pkg/server/dynamiccertificates.
    Departs: looked at when somebody connects, once a second at most, where the kubelet looks once a minute.
    """

    def __init__(
        self, pair: KeyPair, config: KubeletConfiguration, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Errors: as `server_context`."""
        self._pair, self._config, self._clock = pair, config, clock
        authorities = config.authentication.x509.client_ca_file
        self._files = [
            os.fspath(pair.certificate),
            os.fspath(pair.key),
            *([authorities] if authorities else []),
        ]
        self._looked_s, self._stamps = clock(), self._stamps_now()
        self._context = server_context(pair, config)

    def now(self, tell: Callable[[str], None]) -> ssl.SSLContext:
        """How to talk to who comes now; ``tell`` hears once of each change that cannot be taken: the old ones stay."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            stamps = self._stamps_now()
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._context = server_context(self._pair, self._config)
                except InputError as error:
                    tell(f"the certificates of before stay in use: {error}")
        return self._context

    def _stamps_now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(one) for one in self._files]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - for each who connects
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_context(pair: KeyPair, config: KubeletConfiguration) -> ssl.SSLContext:
    """How to talk to those who ask: with this key, and with certificates of `authentication.x509.clientCAFile`.

    Errors:  InputError with all that is wrong with the files and names.
    Follows: v1.36, cmd/kubelet/app/server.go, InitializeTLS; component-base/cli/flag/ciphersuites_flag.go.
    Departs: TLS 1.0 and 1.1, and suites without forward secrecy, cannot be had; a client certificate that the
        authorities have not signed ends the handshake, where the kubelet answers 401, or goes by the token: Python
        cannot take a certificate without verifying it.
    """
    faults = [*_version_faults(config.tls_min_version), *_suite_faults(config.tls_cipher_suites)]
    if faults:
        raise InputError(faults)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.tls_min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    suites = [_SUITES[one] for one in config.tls_cipher_suites if one in _SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
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
    said = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        said = f"no certificate and key in PEM that belong together ({(error.reason or said).lower().replace('_', ' ')})"
    return Fault(path=path, value=value, rule=said)


def _version_faults(version: str) -> list[Fault]:
    if version in _VERSIONS:
        return []
    known = ", ".join(one for one in _VERSIONS if one)
    rule = (
        f"TLS 1.0 and 1.1 are not spoken; there are {known}"
        if version in _OLD_VERSIONS
        else f"one of {known}"
    )
    return [Fault(path="tlsMinVersion", value=version, rule=rule)]


def _suite_faults(suites: Sequence[str]) -> list[Fault]:
    known = ", ".join(_SUITES)
    return [
        Fault(path=f"tlsCipherSuites[{place}]", value=one, rule=f"there are: {known}")
        for place, one in enumerate(suites)
        if one not in _SUITES and one not in _OF_TLS_13
    ]
