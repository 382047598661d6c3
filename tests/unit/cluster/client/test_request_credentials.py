"""Tokens of files, credential plugins, and what happens when the server no longer accepts them."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.cluster_access import NODES, access_to, call, secure_access
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import FakeApiServer, fake_api_server

from nodewright.cluster.client.access import ClusterAccess, ExecPlugin, Impersonation, UserCredentials
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.request_credentials import (
    RequestCredentials,
    impersonation_headers,
    run_plugin,
)
from nodewright.model.errors import HostError

V1 = "client.authentication.k8s.io/v1"


class SettableClock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def authorization(credentials: RequestCredentials) -> str:
    return dict(asyncio.run(credentials.headers())).get("Authorization", "")


def requests_with(credentials: UserCredentials, clock: Callable[[], float]) -> RequestCredentials:
    return RequestCredentials(credentials, plugin_timeout_s=30, clock=clock)


# ---------------------------------------------------------------- tokens and passwords


def test_a_token_a_password_or_nothing_is_sent() -> None:
    clock = SettableClock()
    assert authorization(requests_with(UserCredentials(token="t"), clock)) == "Bearer t"  # noqa: S106 - made up
    pair = UserCredentials(username="ann", password="p:w")  # noqa: S106 - made up
    assert authorization(requests_with(pair, clock)) == "Basic YW5uOnA6dw=="
    assert authorization(requests_with(UserCredentials(), clock)) == ""


def test_a_token_file_is_read_again_after_a_minute_and_is_preferred(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", SettableClock()
    file.write_text("first\n", "utf-8")
    credentials = requests_with(UserCredentials(token="fixed", token_file=str(file)), clock)  # noqa: S106 - made up
    assert authorization(credentials) == "Bearer first"
    file.write_text("second", "utf-8")
    clock.now_s += 49
    assert authorization(credentials) == "Bearer first"
    clock.now_s += 2
    assert authorization(credentials) == "Bearer second"
    file.unlink()
    clock.now_s += 60
    assert authorization(credentials) == "Bearer second"


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    clock = SettableClock()
    path = str(tmp_path / "token")
    with pytest.raises(HostError, match=f"read the token file {path}: No such file or directory"):
        authorization(requests_with(UserCredentials(token_file=path), clock))
    fallback = UserCredentials(token="fixed", token_file=path)  # noqa: S106 - made up
    assert authorization(requests_with(fallback, clock)) == "Bearer fixed"
    Path(path).write_text("\n", "utf-8")
    with pytest.raises(HostError, match=f"read the token file {path}: the file is empty"):
        authorization(requests_with(UserCredentials(token_file=path), clock))


def test_another_user_is_named_in_headers() -> None:
    impersonation = Impersonation(
        user="bob", uid="7", groups=("dev", "ops"), extra=(("example.com/Scopes", ("a", "b")),)
    )
    assert impersonation_headers(impersonation) == [
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2FScopes", "a"),
        ("Impersonate-Extra-example.com%2FScopes", "b"),
    ]
    assert impersonation_headers(Impersonation(groups=("dev",))) == []


# ---------------------------------------------------------------- plugins


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., ExecPlugin]:
    """Makes a plugin that runs Python code; `counter` is a file to which it may write."""

    def make(code: str, **fields: Any) -> ExecPlugin:
        header = f"import json, os, pathlib, sys\ncounter = pathlib.Path({str(tmp_path / 'counter')!r})\n"
        (tmp_path / "plugin.py").write_text(header + code, "utf-8")
        arguments = ("-S", str(tmp_path / "plugin.py"))
        return ExecPlugin(
            **{
                "command": sys.executable,
                "arguments": arguments,
                "api_version": V1,
                "interactive_mode": "Never",
            }
            | fields
        )

    return make


def printing(status: Any, **members: Any) -> str:
    document = {"kind": "ExecCredential", "apiVersion": V1, "status": status} | members
    return f"print({json.dumps(document)!r})"


COUNTING = """
count = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (count + 1))
status = {"token": f"token-{count}"} | EXTRA
print(json.dumps({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}))
"""


def test_a_plugin_runs_once_until_its_credentials_expire(plugin: Callable[..., ExecPlugin]) -> None:
    extra = "{'expirationTimestamp': '1970-01-12T13:47:00Z'}"  # 1,000,020 s
    clock = SettableClock()
    credentials = requests_with(UserCredentials(exec_plugin=plugin(COUNTING.replace("EXTRA", extra))), clock)
    assert [authorization(credentials) for _ in range(2)] == ["Bearer token-0"] * 2
    clock.now_s += 20
    assert authorization(credentials) == "Bearer token-0"
    clock.now_s += 1
    assert authorization(credentials) == "Bearer token-1"


def test_credentials_without_expiry_stay_until_they_are_refused(plugin: Callable[..., ExecPlugin]) -> None:
    clock = SettableClock()
    credentials = requests_with(UserCredentials(exec_plugin=plugin(COUNTING.replace("EXTRA", "{}"))), clock)
    assert authorization(credentials) == "Bearer token-0"
    clock.now_s += 1e9
    assert authorization(credentials) == "Bearer token-0"
    assert credentials.expire()
    assert authorization(credentials) == "Bearer token-1"


def test_a_plugin_receives_its_environment_and_the_cluster(plugin: Callable[..., ExecPlugin]) -> None:
    code = """
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
token = json.dumps([info, os.environ["PROFILE"], sys.argv[1:], sys.stdin.read()])
print(json.dumps({"kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": {"token": token}}))
"""
    cluster = b'{"server":"https://a"}'
    made = plugin(code, environment=(("PROFILE", "x"),), cluster_info=cluster)
    made = msgspec.structs.replace(made, arguments=(*made.arguments, "-v"))
    printed = asyncio.run(run_plugin(made, 30))
    information = {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}
    information["spec"] |= {"cluster": {"server": "https://a"}}  # type: ignore[operator] # a dict
    assert json.loads(printed.token) == [information, "x", ["-v"], ""]


FAILURES = [
    ("sys.exit(3)", {}, "failed with exit code 3"),
    ("print('login first')", {}, "printed no ExecCredential: JSON is malformed: invalid character (byte 0)"),
    (printing({"token": "t"}, kind="Pod"), {}, f"printed {V1} Pod instead of {V1} ExecCredential"),
    (
        printing({"token": "t"}, apiVersion=f"{V1}beta1"),
        {},
        f"printed {V1}beta1 ExecCredential instead of {V1} ExecCredential",
    ),
    ("print('{}')", {}, f"printed no apiVersion without a kind instead of {V1} ExecCredential"),
    (printing(None), {}, "printed an ExecCredential without status"),
    (printing({}), {}, "printed neither a token nor a certificate with its key"),
    (printing({"clientKeyData": "k"}), {}, "printed a certificate or a key, but not both"),
    (
        printing({"token": "t", "expirationTimestamp": "soon"}),
        {},
        "printed an invalid status.expirationTimestamp: 'soon' is not a time such as 2026-01-31T12:00:00Z",
    ),
    ("", {"interactive_mode": "Always"}, "asks the user, but standard input is not a terminal"),
    (
        "",
        {"command": "/none/login", "install_hint": "Install\n it."},
        "No such file or directory (Install it.)",
    ),
]


@pytest.mark.parametrize(("code", "fields", "text"), FAILURES)
def test_a_plugin_that_fails_is_a_line(
    plugin: Callable[..., ExecPlugin],
    code: str,
    fields: dict[str, Any],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = plugin(code, **fields)
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(HostError) as caught:
            asyncio.run(run_plugin(made, 30))
    assert str(caught.value) == f"run the credential plugin {made.command}: {text}"


@pytest.mark.slow
def test_a_plugin_that_never_ends_is_ended(plugin: Callable[..., ExecPlugin], tmp_path: Path) -> None:
    made = plugin("counter.write_text(str(os.getpid()))\nimport time\ntime.sleep(600)\n")
    with pytest.raises(HostError, match=r"no answer within 0\.5 s"):
        asyncio.run(run_plugin(made, 0.5))
    counter = tmp_path / "counter"
    if counter.exists():  # Else it was ended before it ran.
        assert not Path(f"/proc/{counter.read_text('utf-8')}").exists()


def test_the_output_of_a_plugin_is_bounded(plugin: Callable[..., ExecPlugin]) -> None:
    made = plugin("while True: sys.stdout.write('x' * 65536)")
    with pytest.raises(HostError, match=r"run the credential plugin .*: it prints more than 1048576 bytes"):
        asyncio.run(run_plugin(made, 60))


# ---------------------------------------------------------------- with a server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(authority: Authority) -> Iterator[FakeApiServer]:
    with fake_api_server(authority.pair("127.0.0.1"), authority.certificate) as running:
        running.users = {"Bearer token-1": "ann"}
        running.serve(NODES, {"kind": "NodeList", "apiVersion": "v1", "items": []})
        yield running


def with_credentials(access: ClusterAccess, **fields: Any) -> ClusterAccess:
    return msgspec.structs.replace(access, credentials=UserCredentials(**fields))


def test_refused_credentials_are_read_again_once(
    server: FakeApiServer, authority: Authority, tmp_path: Path, plugin: Callable[..., ExecPlugin]
) -> None:
    access = secure_access(tmp_path, server, authority)
    made = plugin(COUNTING.replace("EXTRA", "{}"))
    call(with_credentials(access, exec_plugin=made), lambda client: client.get(NODES))
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer token-0",
        "Bearer token-1",
    ]
    server.users = {"other": "ann"}
    with pytest.raises(ApiError, match="401 Unauthorized"):
        call(with_credentials(access, exec_plugin=made), lambda client: client.get(NODES))
    assert len(server.requests) == 4


def test_a_fixed_token_that_is_refused_is_sent_once(
    server: FakeApiServer, authority: Authority, tmp_path: Path
) -> None:
    access = with_credentials(secure_access(tmp_path, server, authority), token="old")  # noqa: S106 - made up
    with pytest.raises(ApiError, match="401 Unauthorized"):
        call(access, lambda client: client.get(NODES))
    assert len(server.requests) == 1


def test_a_plugin_may_print_a_certificate(
    server: FakeApiServer, authority: Authority, tmp_path: Path, plugin: Callable[..., ExecPlugin]
) -> None:
    certificate, key = (path.read_text("utf-8") for path in authority.pair("ann"))
    made = plugin(printing({"clientCertificateData": certificate, "clientKeyData": key}))
    access = with_credentials(secure_access(tmp_path, server, authority), exec_plugin=made)
    server.forbidden_users = {"ann"}
    with pytest.raises(ApiError, match='User "ann" cannot list'):
        call(access, lambda client: client.get(NODES))


def test_groups_are_sent_as_headers() -> None:
    with fake_api_server() as server:
        server.serve(NODES, {})
        impersonation = Impersonation(user="bob", groups=("dev", "ops"))
        access = access_to(server, credentials=UserCredentials(impersonation=impersonation))
        call(access, lambda client: client.get(NODES))
        headers = server.requests[0].headers
    assert (headers["Impersonate-User"], headers.get_all("Impersonate-Group")) == ("bob", ["dev", "ops"])
