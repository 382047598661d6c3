"""Names of a cluster's objects at a shell's prompt."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fake_api_server import FakeApiServer
from tests.support.shop_cluster import fake_shop_cluster

from nodewright.cli.complete import TABLE, names_in_cluster

TABLE_NOW = json.loads(Path(TABLE).read_text("utf-8"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_shop_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        server.add("/api/v1/namespaces", {"metadata": {"name": "shop"}}, {"metadata": {"name": "jobs"}})
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("explain pod/w", "pod/web-0 pod/web-6d5c8f7b9-l4x8q"),
        ("explain pod w", "web-0 web-6d5c8f7b9-l4x8q"),
        ("explain -n jobs po/", "po/importer po/report"),
        ("explain --namespace=jobs po/im", "po/importer"),
        ("admit --node node/worker-3", "node/worker-3"),
        ("admit --node=node/", ""),
        ("node capture node/worker-1", "node/worker-1"),
        ("explain deploy/", "deploy/api"),
        ("explain -n j", "jobs"),
        ("explain --namespace=s", "shop"),
        ("explain --context ", "shop"),
        ("explain nothing/", ""),
        ("explain --kubeconfig /nowhere pod/", ""),
        ("completion pod/", ""),
        ("", ""),
    ],
)
def test_names_are_those_of_the_cluster(line: str, names: str, server: FakeApiServer) -> None:
    assert list(names_in_cluster(TABLE_NOW, line.split(" "))) == names.split()


@pytest.mark.parametrize(
    "line", ["admit -f ", "explain examples/pod", "explain --node ", "admit -f docs/", "explain "]
)
def test_nothing_is_requested_where_a_file_may_be_meant(line: str, server: FakeApiServer) -> None:
    assert not list(names_in_cluster(TABLE_NOW, line.split(" ")))
    assert not server.requests


def test_a_cluster_that_does_not_answer_has_no_names(server: FakeApiServer) -> None:
    server.stop()
    assert list(names_in_cluster(TABLE_NOW, ["explain", "pod/"])) == []


@pytest.mark.parametrize(
    "name", ["a$(id)", "a b", "a\n:0", "a\x1b[2J", "a`id`", "a;id", "-f\ty", "a'", "", "é"]
)
def test_names_that_mean_something_to_a_shell_are_left_out(name: str, server: FakeApiServer) -> None:
    server.add("/api/v1/namespaces", {"metadata": {"name": name}})
    assert list(names_in_cluster(TABLE_NOW, ["explain", "-n", ""])) == ["jobs", "shop"]
