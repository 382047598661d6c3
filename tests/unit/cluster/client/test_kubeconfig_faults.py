"""Every fault of a kubeconfig names file, path, value and rule."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_access import access, kubeconfig, write

from nodewright.cluster.client.access import AccessOptions
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.model.errors import InputError

V1 = "client.authentication.k8s.io/v1"


def faults(path: str, **options: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        access(path, **options)
    return [str(fault).removeprefix(f"{path}: ") for fault in caught.value.faults]


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    (
        kubeconfig(current="b"),
        ['current-context: Invalid value: "b": no context has this name; there are: a'],
    ),
    (
        kubeconfig(current=""),
        ["current-context: is not set: choose a context with --context; there are: a"],
    ),
    (
        kubeconfig(context={"cluster": "x", "user": "z"}),
        [
            'contexts[a].context.cluster: Invalid value: "x": no cluster has this name; there are: a',
            'contexts[a].context.user: Invalid value: "z": no user has this name; there are: a',
        ],
    ),
    (kubeconfig(context={"cluster": ""}), ["contexts[a].context.cluster: must be set; there are: a"]),
    (
        kubeconfig(clusters=[]),
        ['contexts[a].context.cluster: Invalid value: "a": no cluster has this name; there are none'],
    ),
    (kubeconfig(cluster={"server": ""}), ["clusters[a].cluster.server: must be set"]),
    (
        kubeconfig(cluster={"server": "ftp://x"}),
        [
            (
                'clusters[a].cluster.server: Invalid value: "ftp://x": must be a URL that begins with https:// or http:// '
                "and names a host"
            )
        ],
    ),
    (
        kubeconfig(cluster={"server": "https://x:99999"}),
        [
            'clusters[a].cluster.server: Invalid value: "https://x:99999": must be a URL: Port out of range 0-65535'
        ],
    ),
    (
        kubeconfig(cluster={"proxy-url": "socks5://x"}),
        [
            (
                'clusters[a].cluster.proxy-url: Invalid value: "socks5://x": proxies of the scheme socks5 are not supported; '
                "supported: http, https"
            )
        ],
    ),
    (
        kubeconfig(cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": "Q0E="}),
        [
            (
                "clusters[a].cluster.insecure-skip-tls-verify: Invalid value: true: must not be set together with a "
                "certificate authority"
            )
        ],
    ),
    (
        kubeconfig(cluster={"certificate-authority-data": "a*"}),
        ["clusters[a].cluster.certificate-authority-data: must be base64: Only base64 data is allowed"],
    ),
    (
        kubeconfig(user={"client-certificate-data": "Q0E="}),
        ["users[a].user.client-key: must be set, or client-key-data, with a client certificate"],
    ),
    (
        kubeconfig(user={"token": "t", "username": "u"}),
        ['users[a].user.username: Invalid value: "u": must not be set together with a token'],
    ),
    (
        kubeconfig(user={"as-uid": "1", "as-groups": ["g"], "as-user-extra": {"a": ["b"]}}),
        [
            "users[a].user.as-uid: must be set together with `as`",
            "users[a].user.as-groups: must be set together with `as`",
            "users[a].user.as-user-extra: must be set together with `as`",
        ],
    ),
    (
        kubeconfig(user={"auth-provider": {"name": "gcp"}}),
        [
            (
                'users[a].user.auth-provider.name: Invalid value: "gcp": credential plugins of kubectl itself are not '
                "supported: use `exec`"
            )
        ],
    ),
    (
        kubeconfig(user={"exec": {"env": [{"value": "x"}], "apiVersion": "v9"}}),
        [
            "users[a].user.exec.command: must be set",
            f'users[a].user.exec.apiVersion: Invalid value: "v9": must be {V1} or {V1}beta1',
            "users[a].user.exec.env: each variable must have a name",
        ],
    ),
    (
        kubeconfig(user={"exec": {"command": "x", "apiVersion": V1}}),
        ["users[a].user.exec.interactiveMode: must be Never, IfAvailable, Always"],
    ),
    (
        kubeconfig(user={"exec": {"command": "x", "apiVersion": V1, "interactiveMode": "often"}}),
        ['users[a].user.exec.interactiveMode: Invalid value: "often": must be Never, IfAvailable, Always'],
    ),
    (kubeconfig(kind="Pod"), ['kind: Invalid value: "Pod": must be Config in a kubeconfig']),
    (
        kubeconfig(clusters=[{"name": "a"}, {"name": "a"}]),
        ['clusters[1].name: Duplicate value: "a"'],
    ),
    (
        kubeconfig(clusters=[{"name": "a", "cluster": {"server": 5}}]),
        ["clusters[0].cluster.server: Expected `str`, got `int`"],
    ),
    ({}, ["names no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG"]),
]


@pytest.mark.parametrize(("document", "texts"), FAULTS)
def test_each_fault_names_file_path_value_and_rule(
    document: dict[str, Any], texts: list[str], tmp_path: Path
) -> None:
    assert faults(write(tmp_path / "config", document)) == texts


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("- a\n", "a kubeconfig is a mapping"),
        ("a: 1\n---\nb: 2\n", "a kubeconfig has one document, this file 2"),
    ],
)
def test_a_file_of_another_form_is_a_fault(text: str, rule: str, tmp_path: Path) -> None:
    assert faults(write(tmp_path / "config", text)) == [rule]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    cluster = {"certificate-authority": "no.pem"}
    user = {"client-certificate": "cert.pem", "client-key": ".", "client-key-data": "Q0E=", "tokenFile": "no"}
    assert faults(write(tmp_path / "config", kubeconfig(cluster=cluster, user=user))) == [
        (
            f'clusters[a].cluster.certificate-authority: Invalid value: "{tmp_path}/no.pem": '
            "cannot be read: No such file or directory"
        ),
        (
            f'users[a].user.client-certificate: Invalid value: "{tmp_path}/cert.pem": '
            "cannot be read: No such file or directory"
        ),
        f'users[a].user.client-key: Invalid value: "{tmp_path}": cannot be read: Is a directory',
        f'users[a].user.tokenFile: Invalid value: "{tmp_path}/no": cannot be read: No such file or directory',
        'users[a].user.client-key: Invalid value: ".": must not be set together with client-key-data',
    ]
    assert faults(str(tmp_path / "none")) == ["cannot be read: No such file or directory"]


def test_an_authority_is_a_file_or_data(tmp_path: Path) -> None:
    authority = write(tmp_path / "ca.pem", "CA")
    cluster = {"certificate-authority": authority, "certificate-authority-data": "Q0E="}
    assert faults(write(tmp_path / "config", kubeconfig(cluster=cluster))) == [
        (
            f'clusters[a].cluster.certificate-authority: Invalid value: "{authority}": must not be set together with '
            "certificate-authority-data"
        )
    ]


def test_a_context_that_does_not_exist_lists_those_that_do(tmp_path: Path) -> None:
    contexts = [{"name": f"c{number:02}", "context": {}} for number in range(12)]
    assert faults(write(tmp_path / "config", kubeconfig(contexts=contexts)), context="x") == [
        (
            '--context: Invalid value: "x": no context has this name; there are: c00, c01, c02, c03, c04, c05, c06, c07, '
            "c08, c09 and 2 more"
        )
    ]


def test_the_faults_of_all_files_are_reported(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "a: b: c\n") for name in ("first", "second")]
    with pytest.raises(InputError) as caught:
        load_access(AccessOptions(), {"KUBECONFIG": os.pathsep.join(paths)})
    assert [fault.source.split(":")[0] for fault in caught.value.faults] == paths


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"KUBECONFIG": "/none/a:/none/b"}, "KUBECONFIG=/none/a:/none/b"),
        ({"HOME": "/none"}, "/none/.kube/config"),
    ],
)
def test_without_any_file_the_place_is_named(environment: dict[str, str], place: str) -> None:
    with pytest.raises(InputError) as caught:
        load_access(AccessOptions(), environment)
    text = f"{place}: no such file: name a kubeconfig with --kubeconfig or KUBECONFIG"
    assert str(caught.value) == text
