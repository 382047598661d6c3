"""A key and a certificate that it signs itself, made when there is none: what a kubelet does that nobody gave any."""

import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from nodewright.world.errors import WorldError

RENEWED_BEFORE_S = 30 * 86_400
_LIMIT_S = 60.0


class KeyPair(NamedTuple):
    """Where a certificate and its key are."""

    certificate: Path
    key: Path


def own_key_pair(directory: Path, name: str, addresses: tuple[str, ...]) -> KeyPair:
    """The pair in the directory; a new one where there is none, or it is good for less than a month.

    Errors:  WorldError.
    Follows: v1.36, cmd/kubelet/app/server.go, InitializeTLS: `kubelet.crt` and `kubelet.key` below `pki`.
    Departs: one that runs out is made anew at the next start; the key is an elliptic one, which makes handshakes cheap.
    """
    pair = KeyPair(directory / "kubelet.crt", directory / "kubelet.key")
    if pair.key.is_file() and _left_s(pair.certificate) > RENEWED_BEFORE_S:
        return pair
    command = [sys.executable, "-m", "nodewright.world.key_maker", os.fspath(directory), name, *addresses]
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorldError("make a key for TLS in", os.fspath(directory), str(error)) from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
        if "No module named 'cryptography'" in said[0]:
            said = [
                "it takes cryptography (pip install 'nodewright[agent]'); or name tlsCertFile and tlsPrivateKeyFile"
            ]
        raise WorldError("make a key for TLS in", os.fspath(directory), said[0])
    return pair


def _left_s(certificate: Path) -> float:
    """How long a certificate is good for; 0 where there is none that can be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=certificate)
    except (OSError, ssl.SSLError):
        return 0.0
    # It stands for itself, so it is among those that stand for others.
    ends = [str(one["notAfter"]) for one in context.get_ca_certs()]
    return min((ssl.cert_time_to_seconds(one) for one in ends), default=0.0) - time.time()
