"""Answers that no API server gives, but one that means harm: without end, nested, slow to search, with paths as names."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.cluster_access import NODES, access_to, call, error
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server

from nodewright.agent.member.pod_informer import PodInformer
from nodewright.agent.member.service_account_tokens import _issued
from nodewright.agent.rules.value_sources import TokenSpec
from nodewright.cluster.client import api_client, cluster_api, list_watch
from nodewright.cluster.client.access import AccessOptions, ClusterAccess, PEMSource
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.list_watch import OverlongLineError, collected_pages, lines_of
from nodewright.cluster.client.reflector import Reflector, object_version
from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.cluster.exports.exported_node import EXPORT, exported_cluster_node
from nodewright.cluster.objects.node_sources import NodeReading
from nodewright.documents.files.file_store import LocalFileStore
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.recorded_events import RecordEvent

DEEP = b'{"items":[],"x":' + b"[" * 100_000


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as running:
        yield running


@pytest.mark.slow
def test_an_answer_that_unpacks_to_very_much_is_an_error(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "MAX_ANSWER_BYTES", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b" " * (50 << 20)) + packer.flush()
    for status in (200, 500):
        server.canned[NODES].append(CannedAnswer(status, packed, (("Content-Encoding", "gzip"),)))
        assert str(error(access_to(server))).endswith("has more than 1048576 bytes, which is the limit")


@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_that_is_nested_very_deeply_is_an_error(server: FakeApiServer, status: int) -> None:
    server.canned[NODES].append(CannedAnswer(status, DEEP))
    assert isinstance(error(access_to(server)), ApiError)


@pytest.mark.parametrize("tokens", [["again"] * 18, [str(number) for number in range(18)]])
def test_a_list_whose_pages_do_not_end_is_an_error(
    server: FakeApiServer, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_api, "MAX_PAGES", 6)
    for token in tokens:
        page = {"kind": "NodeList", "items": [], "metadata": {"continue": token}}
        server.canned[NODES].append(CannedAnswer(200, msgspec.json.encode(page)))
    assert "the list has no end" in str(error(access_to(server)))
    monkeypatch.setattr(cluster_api, "MAX_LIST_BYTES", 100)
    assert "the list has no end" in str(error(access_to(server)))
    assert len(server.requests) <= 8

    async def followed(client: ApiClient) -> None:
        async with ApiClient(client.access) as api:
            await Reflector(api, NODES, "", None).read_list()  # type: ignore[arg-type] # no clock is read

    with pytest.raises(ApiError, match="the list has no end"):
        call(access_to(server), followed)


def test_a_page_of_nothing_but_titles_is_searched_quickly(server: FakeApiServer) -> None:
    for piece in (b"<title", b"<title>", b"<title >"):
        server.canned[NODES].append(CannedAnswer(502, piece * (1 << 20), (("Content-Type", "text/html"),)))
        began_s = time.process_time()
        assert "HTML page" in str(error(access_to(server)))
        assert time.process_time() - began_s < 2


def test_an_event_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "MAX_LINE_BYTES", 1 << 20)

    async def read(chunk: bytes) -> list[bytes]:
        async def stream() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield chunk

        return [line async for line in lines_of(stream())]

    with pytest.raises(OverlongLineError):
        asyncio.run(read(b"x" * (1 << 16)))
    assert len(asyncio.run(read(b"x" * (1 << 16) + b"\n"))) == 100


@pytest.mark.parametrize("content", [b"[]", b"5", b'"x"', b"null", DEEP, b"\xff"])
def test_an_answer_that_is_no_object_is_an_error_of_the_agents_client(
    server: FakeApiServer, content: bytes
) -> None:
    async def read(client: ApiClient) -> None:
        async with ApiClient(client.access) as api:
            await api.read(NODES, {})

    server.canned[NODES].append(CannedAnswer(200, content))
    with pytest.raises(ApiError, match="the answer is not the expected JSON"):
        call(access_to(server), read)


@pytest.mark.parametrize("text", ["\u00b2", "9" * 5000, "", None, 7])
def test_any_text_is_a_version(text: Any) -> None:
    assert object_version({"metadata": {"resourceVersion": text}}) == (7 if text == 7 else 0)


def test_files_that_a_kubeconfig_names_are_read_up_to_a_limit(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="which is the limit"):
        PEMSource("/dev/zero").content()
    with pytest.raises(InputError, match="which is the limit"):
        load_access(AccessOptions(kubeconfig="/dev/zero"), {"HOME": str(tmp_path)})


class OneObject:
    """A reflector that has one object."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.objects = {"u": document}
        self.on_change: Any = None
        self.has_listed = False


@pytest.mark.parametrize(
    ("meta", "spec"),
    [
        ({"uid": "../../etc/cron.d/x"}, {}),
        ({"uid": ""}, {}),
        ({"uid": "u", "namespace": "../a"}, {}),
        ({"uid": "u", "name": "."}, {}),
        ({"uid": "u"}, {"containers": [{"name": "a/b"}]}),
        ({"uid": "u"}, {"initContainers": [{"name": ".."}]}),
        ({"uid": "u"}, {"volumes": [{"name": "/etc", "emptyDir": {}}]}),
        ({"uid": "u"}, {"volumes": [{"emptyDir": {}}]}),
    ],
)
def test_pods_with_paths_as_names_are_not_taken(meta: dict[str, Any], spec: dict[str, Any]) -> None:
    document = {"metadata": {"name": "web", "namespace": "shop", **meta}, "spec": {"containers": [], **spec}}
    events: list[RecordEvent] = []
    informer = PodInformer(OneObject(document), lambda _: None)  # type: ignore[arg-type] # a stand-in
    informer.record_event = events.append
    assert not informer._decode("u")
    assert [event.reason for event in events] == ["PodNotDecoded"]
    document["metadata"] = {"name": "web", "namespace": "shop", "uid": "u"}
    document["spec"] = {"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]}
    assert informer._decode("u")


def _token(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": source}]}}]}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"volumes": [{"name": "v", "secret": 5}]}, "spec.volumes[0].secret"),
        ({"volumes": [{"name": "v", "projected": "x"}]}, "spec.volumes[0].projected"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [None]}}]},
            "spec.volumes[0].projected.sources[0]",
        ),
        (_token(expirationSeconds="abc"), "expirationSeconds"),
        (_token(expirationSeconds=10**400), "expirationSeconds"),
        (_token(audience={"a": 1}), "audience"),
        (
            {"containers": [{"name": "a", "envFrom": [{"secretRef": 5}]}]},
            "spec.containers[0].envFrom[0].secretRef",
        ),
    ],
)
def test_pods_with_values_of_wrong_types_concern_no_others(spec: dict[str, Any], path: str) -> None:
    metadata = {"name": "web", "namespace": "shop", "uid": "u"}
    document = {"metadata": metadata, "spec": {"containers": [{"name": "a"}], "newField": 1, **spec}}
    events: list[RecordEvent] = []
    informer = PodInformer(OneObject(document), lambda _: None)  # type: ignore[arg-type] # a stand-in
    informer.record_event = events.append
    assert not informer._decode("u")
    assert [path in event.message for event in events] == [True]


@pytest.mark.parametrize("seconds", [10**400, -1, "x", [1]])
def test_a_token_with_a_lifetime_that_is_none_is_an_error(seconds: Any) -> None:
    answer = {
        "spec": {"expirationSeconds": seconds},
        "status": {"token": "t", "expirationTimestamp": "2026-05-01T10:00:00Z"},
    }
    with pytest.raises((ValueError, TypeError)):
        _issued(answer, TokenSpec())


def test_no_name_leads_out_of_the_directory_of_a_store(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path / "agent")
    for name in ("../out", "pods/../../out", "/out", "pods//x", "pods/\0"):
        for use in (store.read, store.remove, lambda name: store.write(name, b"x")):
            with pytest.raises(HostError):
                use(name)
    store.write("pods/u.json", b"x")
    assert store.read("pods/u.json") == b"x"
    assert [file.name for file in tmp_path.iterdir()] == ["agent"]
    store.close()


def test_items_that_are_no_objects_are_skipped(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.canned[NODES].append(CannedAnswer(200, b'{"items":[5,"a",{"metadata":{}},null,[1]]}'))
    page = call(access_to(server), lambda client: collected_pages(client.list_pages(NODES)))
    assert len(page.items) == 1
    assert "4 objects of the API server cannot be read, skipped" in capsys.readouterr().err


@pytest.mark.parametrize("proxy", ["http://[a]:1", "http://[", "http://a:99999", "http://", "ftp://a", "a"])
def test_a_proxy_that_is_no_url_is_a_fault_of_the_kubeconfig(proxy: str, tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "proxy-url": proxy}
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    path = tmp_path / "config"
    path.write_bytes(msgspec.json.encode(config))
    with pytest.raises(InputError, match="proxy-url"):
        load_access(AccessOptions(kubeconfig=str(path)), {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "url",
    [
        "https://[::1",
        "https://\u2100/",
        "https://127.0.0.1:b/",
        "https://127.0.0.1:99999/",
        "http://127.0.0.1/",
        "x",
    ],
)
def test_a_node_that_names_no_url_as_its_exporter_is_read_without_one(url: str) -> None:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "annotations": {EXPORT_URL: url}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    reading = NodeReading(node=msgspec.json.encode(node), pods=())
    access = ClusterAccess(server="https://127.0.0.1:1")
    captured = asyncio.run(exported_cluster_node("n", reading, access, {}))
    (source,) = [source for source in captured.profile.spec.sources if source.name == EXPORT]
    assert source.error
    assert source.assumed
