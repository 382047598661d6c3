"""Kubeconfig files, their order and every fault."""

import base64
import json
import os
from pathlib import Path

import pytest
from tests.support.cluster_access import access, kubeconfig, write

from nodewright.cluster.client.access import AccessOptions, PEMSource
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.model.errors import InputError

V1 = "client.authentication.k8s.io/v1"


def test_the_current_context_names_server_namespace_and_user(tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(user={"token": "t\n"}, context={"namespace": "shop"}))
    loaded = access(path)
    assert (loaded.server, loaded.namespace, loaded.context) == ("https://a:6443", "shop", "a")
    assert (loaded.credentials.token, loaded.source) == ("t", path)


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(user={"token": "secret", "as": "bob"}))
    assert "secret" not in repr(access(path))


def test_a_context_may_be_chosen(tmp_path: Path) -> None:
    document = kubeconfig()
    document["contexts"].append({"name": "b", "context": {"cluster": "a", "user": "a", "namespace": "x"}})
    loaded = access(write(tmp_path / "config", document), context="b")
    assert (loaded.context, loaded.namespace) == ("b", "x")


def test_the_first_of_several_files_wins_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    first = write(tmp_path / "first", kubeconfig("a", {"server": "https://first"}))
    second_document = kubeconfig("a", {"server": "https://second", "tls-server-name": "x"})
    second_document["contexts"].append({"name": "b", "context": {"cluster": "a"}})
    second_document["current-context"] = "b"
    second = write(tmp_path / "second", second_document)
    paths = os.pathsep.join([str(tmp_path / "missing"), first, "", second, first])
    loaded = load_access(AccessOptions(), {"KUBECONFIG": paths})
    assert (loaded.server, loaded.context, loaded.tls.server_name) == ("https://first", "a", "")
    other = load_access(AccessOptions(context="b"), {"KUBECONFIG": paths})
    assert (other.server, other.namespace) == ("https://first", "default")


def test_a_current_context_of_a_later_file_serves_if_the_first_has_none(tmp_path: Path) -> None:
    first = write(tmp_path / "first", kubeconfig("a", current=""))
    second = write(tmp_path / "second", {"current-context": "a"})
    assert load_access(AccessOptions(), {"KUBECONFIG": f"{first}{os.pathsep}{second}"}).context == "a"


def service_account(folder: Path, *, namespace: str | None = "team\n") -> Path:
    folder.mkdir()
    (folder / "token").write_text("pod-token", "utf-8")
    (folder / "ca.crt").write_text("CA", "utf-8")
    if namespace is not None:
        (folder / "namespace").write_text(namespace, "utf-8")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_option_environment_pod_and_home_are_tried_in_this_order(tmp_path: Path) -> None:
    account = service_account(tmp_path / "account")
    option = write(tmp_path / "option", kubeconfig("option"))
    named = write(tmp_path / "named", kubeconfig("named"))
    write(tmp_path / ".kube" / "config", kubeconfig("home"))
    environment = {"HOME": str(tmp_path), "KUBECONFIG": named, **IN_POD}

    def server(options: AccessOptions) -> str:
        return load_access(options, environment, service_account=account).server

    assert server(AccessOptions(kubeconfig=option)) == "https://option:6443"
    assert server(AccessOptions()) == "https://named:6443"
    del environment["KUBECONFIG"]
    assert server(AccessOptions()) == "https://10.0.0.1:443"
    assert server(AccessOptions(context="home")) == "https://home:6443"
    del environment["KUBERNETES_SERVICE_PORT"]
    assert server(AccessOptions()) == "https://home:6443"


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    account = service_account(tmp_path / "account")
    environment = {
        "HOME": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    loaded = load_access(AccessOptions(impersonate="bob"), environment, service_account=account)
    assert (loaded.server, loaded.namespace, loaded.context) == ("https://[fd00::1]:443", "team", "")
    assert loaded.credentials.token_file == str(account / "token")
    assert loaded.tls.authority == PEMSource(str(account / "ca.crt"))
    assert loaded.credentials.impersonation.user == "bob"
    named = load_access(AccessOptions(), environment | {"POD_NAMESPACE": "other"}, service_account=account)
    assert named.namespace == "other"


def test_a_pod_without_namespace_file_and_authority_is_served_as_well(tmp_path: Path) -> None:
    account = service_account(tmp_path / "account", namespace=None)
    (account / "ca.crt").unlink()
    loaded = load_access(AccessOptions(), {"HOME": str(tmp_path), **IN_POD}, service_account=account)
    assert (loaded.namespace, loaded.tls.authority) == ("default", PEMSource())


def test_relative_paths_start_at_the_file_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem", "token"):
        write(tmp_path / "conf" / "pki" / name, name)
    cluster = {"certificate-authority": "pki/ca.pem", "tls-server-name": "api"}
    user = {"client-certificate": "pki/cert.pem", "client-key": str(tmp_path / "conf/pki/key.pem")}
    write(tmp_path / "conf" / "config", kubeconfig(cluster=cluster, user=user | {"tokenFile": "./pki/token"}))
    monkeypatch.chdir(tmp_path)
    loaded = access("conf/config")
    assert loaded.tls.authority.content() == b"ca.pem"
    assert loaded.tls.client_certificate.content() == b"cert.pem"
    assert loaded.tls.client_key.content() == b"key.pem"
    assert loaded.tls.server_name == "api"
    assert Path(loaded.credentials.token_file).read_text("utf-8") == "token"


def test_certificates_may_be_data_with_line_breaks(tmp_path: Path) -> None:
    data = base64.encodebytes(b"certificate" * 20).decode()
    cluster = {"certificate-authority-data": data}
    user = {"client-certificate-data": data, "client-key-data": data}
    loaded = access(write(tmp_path / "config", kubeconfig(cluster=cluster, user=user)))
    assert {loaded.tls.authority, loaded.tls.client_certificate, loaded.tls.client_key} == {
        PEMSource(data=b"certificate" * 20)
    }


def test_credentials_are_not_sent_without_tls(tmp_path: Path) -> None:
    user = {"token": "t", "as": "bob"}
    loaded = access(write(tmp_path / "config", kubeconfig(cluster={"server": "localhost:8080"}, user=user)))
    assert (loaded.server, loaded.credentials.token) == ("http://localhost:8080", "")
    assert loaded.credentials.impersonation.user == "bob"


def test_another_user_comes_from_the_options_or_the_file(tmp_path: Path) -> None:
    extra = {"scopes": ["a", "b"]}
    user = {"as": "bob", "as-uid": "7", "as-groups": ["dev"], "as-user-extra": extra}
    path = write(tmp_path / "config", kubeconfig(user=user))
    of_file = access(path).credentials.impersonation
    assert (of_file.user, of_file.uid, of_file.groups) == ("bob", "7", ("dev",))
    assert of_file.extra == (("scopes", ("a", "b")),)
    of_options = access(path, impersonate="ann", impersonate_groups=("ops",)).credentials.impersonation
    assert (of_options.user, of_options.groups) == ("ann", ("ops",))


def test_groups_need_a_user() -> None:
    with pytest.raises(InputError, match=r'--as-group: Invalid value: \["ops"\]: .*add --as'):
        load_access(AccessOptions(impersonate_groups=("ops",)), {})


def test_a_plugin_is_used_if_there_are_no_other_credentials(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": V1,
        "command": "./bin/login",
        "args": ["-x"],
        "env": [{"name": "A", "value": "b"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
        "installHint": "install it",
    }
    config = {"audience": "x"}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": config}
    cluster = {"certificate-authority-data": "Q0E=", "extensions": [extension]}
    loaded = access(write(tmp_path / "config", kubeconfig(cluster=cluster, user={"exec": plugin})))
    of_file = loaded.credentials.exec_plugin
    assert of_file is not None
    assert of_file.command == str(tmp_path / "bin" / "login")
    assert (of_file.arguments, of_file.environment) == (("-x",), (("A", "b"),))
    assert json.loads(of_file.cluster_info) == {
        "server": "https://a:6443",
        "certificate-authority-data": "Q0E=",
        "config": config,
    }
    with_token = access(write(tmp_path / "b", kubeconfig(user={"exec": plugin, "token": "t"})))
    assert with_token.credentials.exec_plugin is None


def test_an_older_plugin_may_ask_the_user_unless_it_says_otherwise(tmp_path: Path) -> None:
    plugin = {"apiVersion": f"{V1}beta1", "command": "login"}
    loaded = access(write(tmp_path / "config", kubeconfig(user={"exec": plugin})))
    assert loaded.credentials.exec_plugin is not None
    assert loaded.credentials.exec_plugin.command == "login"
    assert loaded.credentials.exec_plugin.interactive_mode == "IfAvailable"


def test_proxies_of_the_file_win_over_those_of_the_environment(tmp_path: Path) -> None:
    environment = {"HTTPS_PROXY": "http://env:1"}
    of_file = write(tmp_path / "a", kubeconfig(cluster={"proxy-url": "http://file:1"}))
    assert access(of_file, environment).proxy == "http://file:1"
    assert access(write(tmp_path / "b", kubeconfig()), environment).proxy == "http://env:1"
