"""A real kube-apiserver with its etcd, for tests that compare answers; see `KUBEBUILDER_ASSETS` of envtest."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
"""The directory of kube-apiserver and etcd; empty: there are none."""


def needs_real(*programs: str) -> pytest.MarkDecorator:
    """Skips tests where kube-apiserver, etcd or one of these programs are missing."""
    *others, last = ("kube-apiserver", "etcd", *programs)
    return pytest.mark.skipif(
        not ASSETS or not all(Path(ASSETS, program).exists() for program in programs),
        reason=f"KUBEBUILDER_ASSETS does not name a directory with {', '.join(others)} and {last}",
    )


_TOKEN = "admin"  # noqa: S105 - of a server that only this test reaches
NODE_TOKEN = "node"  # noqa: S105 - as above
"""The token of the node `worker`, with a node's rights where the server checks rights."""
BOOTSTRAP_TOKEN = "bootstrap"  # noqa: S105 - as above
"""The token of a machine that is going to be a node."""
_START_S = 90


class APIAnswer(NamedTuple):
    """The answer to a request: its status code and its object."""

    code: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        """The error of the API server; empty if there is none."""
        return str(self.body.get("message", "")) if self.code >= 400 else ""


class RealAPIServer:
    """A client of the server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.etcd_port = 0
        self.impersonation: dict[str, str] = {}
        """Headers that name another user."""
        self._connection: http.client.HTTPSConnection | None = None

    def request(self, method: str, path: str, body: Any = None, *, strict: bool = True) -> APIAnswer:
        """The answer; unknown fields are errors if ``strict``."""
        if method in ("POST", "PUT", "PATCH"):
            path += f"{'&' if '?' in path else '?'}fieldValidation={'Strict' if strict else 'Ignore'}"
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": content, **self.impersonation}
        if self._connection is None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=context, timeout=30
            )
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return APIAnswer(response.status, json.loads(text) if text[:1] == b"{" else {"text": text.decode()})

    def write_kubeconfig(self, path: Path, token: str = _TOKEN) -> Path:
        """The file as a kubeconfig of the token's user."""
        cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "user", "user": {"token": token}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config), "utf-8")
        return path

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def compact(self) -> None:
        """Makes versions before now too old for secrets, which have no cache."""
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=30)
        connection.request("POST", "/v3/kv/range", '{"key": "AA=="}')
        revision = json.loads(connection.getresponse().read())["header"]["revision"]
        connection.request("POST", "/v3/kv/compaction", json.dumps({"revision": revision, "physical": True}))
        assert connection.getresponse().read().startswith(b'{"header"')
        connection.close()

    def create(self, path: str, body: Any, *, is_dry_run: bool = False) -> APIAnswer:
        """The answer to a POST, which with ``is_dry_run`` stores nothing."""
        return self.request("POST", path + ("?dryRun=All" if is_dry_run else ""), body)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def real_api_server(
    folder: Path, *, checks_rights: bool = False, flags: Sequence[str] = ()
) -> Iterator[RealAPIServer]:
    """A running server with empty storage; its logs are in the folder."""
    client, peer, port = free_port(), free_port(), free_port()
    key = folder / "service-account.key"
    subprocess.run(
        ["openssl", "genrsa", "-out", str(key), "2048"],
        check=True,
        capture_output=True,
    )
    tokens = f"{_TOKEN},admin,admin,system:masters\n{NODE_TOKEN},system:node:worker,worker,system:nodes\n"
    tokens += f"{BOOTSTRAP_TOKEN},system:bootstrap:a,bootstrap,system:bootstrappers\n"
    (folder / "tokens.csv").write_text(tokens, "utf-8")
    etcd = [f"{ASSETS}/etcd", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"]
    etcd += [
        "--listen-client-urls",
        f"http://127.0.0.1:{client}",
        "--advertise-client-urls",
        f"http://127.0.0.1:{client}",
    ]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
    server = [f"{ASSETS}/kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}"]
    server += [f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={folder}/certificates"]
    modes, plugins = ("Node,RBAC", "NodeRestriction") if checks_rights else ("AlwaysAllow", "")
    server += [f"--token-auth-file={folder}/tokens.csv", f"--authorization-mode={modes}"]
    server += ["--allow-privileged=true"]
    server += [f"--enable-admission-plugins={plugins}"] if plugins else []
    server += ["--service-account-issuer=https://tests", f"--service-account-signing-key-file={key}"]
    server += [f"--service-account-key-file={key}", "--disable-admission-plugins=ServiceAccount"]
    server += ["--watch-cache-sizes=secrets#0", *flags]
    with ExitStack() as stack:
        stack.enter_context(_process(etcd, folder / "etcd.log"))
        stack.enter_context(_process(server, folder / "kube-apiserver.log"))
        client_of_server = RealAPIServer(port)
        client_of_server.etcd_port = client
        deadline = time.monotonic() + _START_S
        while not _is_ready(client_of_server):
            if time.monotonic() > deadline:
                raise TimeoutError((folder / "kube-apiserver.log").read_text("utf-8")[-2000:])
            time.sleep(0.2)
        stack.callback(client_of_server.close)
        yield client_of_server


def _is_ready(server: RealAPIServer) -> bool:
    try:
        return server.request("GET", "/readyz").code == 200
    except (OSError, http.client.HTTPException):
        return False
