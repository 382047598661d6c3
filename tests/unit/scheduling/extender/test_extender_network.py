"""The extender's servers and its followers of exports, over sockets and TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.deciding_nodes import DecidingNodes, served_exports
from tests.support.json_schema import violations
from tests.support.memory_cluster import PODS
from tests.support.small_nodes import a_numa_pod
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile, with_pods

from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.serving.http_server import ListenAddress
from nodewright.cluster.serving.key_pair import ensure_key_pair
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.cluster.tasks.timing import HostClock
from nodewright.fleet import CandidateNode, node_scorer
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.scheduling.extender import extender_routes, run_extender
from nodewright.scheduling.extender.export_followers import ExportFollowers
from nodewright.scheduling.extender.extender_options import ExtenderOptions
from nodewright.scheduling.extender.extender_routes import MAX_CALL_BYTES
from nodewright.scheduling.extender.run_extender import (
    call_authorizer,
    serve_extender,
    server_tls,
)
from nodewright.scheduling.verdicts.admit_answer import openapi_document
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query
from nodewright.scheduling.verdicts.tracked_cluster import Basis


def options(**given: Any) -> ExtenderOptions:
    values: dict[str, Any] = dict.fromkeys(ExtenderOptions.__struct_fields__)
    values |= {"listen": "127.0.0.1:0", "health_listen": "127.0.0.1:0", "insecure_http": False}
    values |= {"export_base": ()}
    return ExtenderOptions(**(values | given))


class Caller:
    """Sends requests to an extender."""

    def __init__(self, address: ListenAddress, bench: ExtenderBench) -> None:
        self.address, self.bench = address, bench
        self.headers: dict[str, str] = {}
        self.is_tls = True

    async def post(self, path: str, document: Any, **headers: str) -> tuple[int, Any]:
        """The status and the answer."""
        is_ready = isinstance(document, bytes | AsyncIterator)
        body: Any = document if is_ready else msgspec.json.encode(document)
        is_streamed = isinstance(body, AsyncIterator)
        framing = "transfer-encoding: chunked" if is_streamed else f"content-length: {len(body)}"
        lines = [f"POST {path} HTTP/1.1", "host: a", framing, "connection: close"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(*self.address, ssl=context if self.is_tls else None)
        try:
            writer.write("\r\n".join((*lines, "", "")).encode())
            if is_streamed:
                async for part in body:
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                    await writer.drain()
            writer.write(b"0\r\n\r\n" if is_streamed else body)
            head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split()[1]), msgspec.json.decode(answer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(**given: Any) -> AsyncIterator[Caller]:
    """An extender that knows the node n1, over TLS."""
    clock = HostClock()
    bench = ExtenderBench(BindingCluster(clock), clock)
    bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
    bench.put_export("n1", a_profile())
    chosen = options(**given)
    async with AsyncExitStack() as stack:
        security = server_tls(chosen), call_authorizer(chosen)
        bound = await serve_extender(stack, chosen, bench.service, security)
        yield Caller(bound, bench)


def token_file(folder: Path) -> Path:
    tokens = folder / "tokens.csv"
    tokens.write_text("secret,scheduler,1\n", "utf-8")
    return tokens


def test_calls_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(token_auth_file=token_file(tmp_path)) as caller:
            caller.headers = {"authorization": "Bearer secret"}
            pod = caller.bench.api.create_free_pod("first", 4)
            args = {"Pod": pod, "NodeNames": ["n1", "n2"]}
            status, answer = await caller.post("/filter", args)
            assert (status, answer["NodeNames"]) == (200, ["n1", "n2"])
            status, scores = await caller.post("/prioritize", args)
            assert scores == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}]
            binding = {"PodName": "first", "PodNamespace": "default", "PodUID": "uid-first", "Node": "n1"}
            assert await caller.post("/bind", binding) == (200, {"Error": ""})
            victims = {"n1": {"Pods": [{"UID": "uid-first"}]}}
            status, answer = await caller.post("/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})
            assert (status, list(answer["NodeNameToMetaVictims"])) == (200, ["n1"])

    asyncio.run(scenario())


def test_a_scorer_that_fails_is_an_error_of_the_call() -> None:
    def fail(_query: PodQuery, _name: str) -> int:
        raise CustomPolicyError(quiet, "it fails")

    @node_scorer("quiet")
    def quiet(_candidate: CandidateNode) -> int:
        "Any node."
        return 0

    async def scenario() -> None:
        async with serving() as caller:
            caller.bench.service.options = msgspec.structs.replace(caller.bench.service.options, scorer=fail)
            status, answer = await caller.post("/prioritize", {"Pod": {"spec": {}}, "NodeNames": ["n1"]})
            assert (status, answer["kind"]) == (500, "Status")
            assert "it fails" in answer["message"]

    asyncio.run(scenario())


def test_admit_answers_as_its_openapi_document_says() -> None:
    async def scenario() -> None:
        async with serving() as caller:
            pod = caller.bench.api.create_free_pod("first", 5)
            status, answer = await caller.post("/v1/admit", {"pod": pod})
            assert (status, answer["possible"]) == (200, 0)
            assert answer["nodes"][0]["reason"] == "TopologyAffinityError"
            text = msgspec.json.encode(openapi_document()["components"]["schemas"]).decode()
            schemas = msgspec.json.decode(text.replace("#/components/schemas/", "#/$defs/"))
            assert violations({**schemas["AdmitAnswer"], "$defs": schemas}, answer) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/filter", b"{", 422, "not the expected JSON"),
        ("/filter", {"NodeNames": []}, 422, "missing required field `Pod`"),
        ("/bind", {"PodName": "a", "PodNamespace": "b", "PodUID": "", "Node": "n"}, 403, "--client-ca-file"),
        ("/preempt", {"Pod": {}}, 422, "NodeNameToMetaVictims"),
        ("/v1/admit", b"nonsense", 400, "not the expected JSON"),
        ("/v1/admit", {"pod": {}}, 422, "pod.spec: Required value"),
        ("/v1/admit", {"pod": {"spec": {}}, "nodes": [7]}, 422, "nodes[0]"),
        ("/elsewhere", {}, 404, "Not Found"),
    ],
)
def test_malformed_calls_get_an_error_with_the_field(path: str, body: Any, status: int, text: str) -> None:
    async def scenario() -> None:
        async with serving() as caller:
            code, answer = await caller.post(path, body)
            assert (code, answer["kind"]) == (status, "Status")
            assert text in answer["message"]
            assert await caller.post("/prioritize", {"Pod": {"spec": {}}, "NodeNames": []}) == (200, [])

    asyncio.run(scenario())


def test_a_call_without_a_length_is_refused_where_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_extender, "MAX_CALL_BYTES", 1000)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    async def scenario() -> None:
        async with serving() as caller:
            status, answer = await caller.post("/filter", parts())
            assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")

    asyncio.run(scenario())


def test_a_call_that_is_too_large_is_refused_unread() -> None:
    async def scenario() -> None:
        async with serving() as caller:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection(*caller.address, ssl=context)
            writer.write(
                b"POST /filter HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n{" % (MAX_CALL_BYTES + 1)
            )
            line = await reader.readline()
            assert b"413" in line
            writer.close()

    asyncio.run(scenario())


def test_large_calls_at_the_same_time_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender_routes, "_SMALL_CALL_BYTES", 1000)
    monkeypatch.setattr(extender_routes, "MAX_CALLS_BYTES", 3000)

    async def scenario() -> None:
        async with serving() as caller:
            was_read, may_end = asyncio.Event(), asyncio.Event()

            async def slow() -> AsyncIterator[bytes]:
                yield b" " * 3500
                was_read.set()
                await may_end.wait()

            first = asyncio.create_task(caller.post("/filter", slow()))
            await was_read.wait()
            large, small = (b" " * size for size in (2000, 900))
            status, answer = 0, dict[str, Any]()
            while status != 503:  # Until the server has read the first part.
                status, answer = await caller.post("/filter", large)
            assert answer["message"] == "large calls at the same time have 3000 bytes"
            assert (await caller.post("/filter", small))[0] == 422
            may_end.set()
            assert (await first)[0] == 422
            assert (await caller.post("/filter", large))[0] == 422

    asyncio.run(scenario())


def test_callers_are_identified_by_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(token_auth_file=token_file(tmp_path)) as caller:
            args = {"Pod": {"spec": {}}, "NodeNames": []}
            with pytest.raises(msgspec.DecodeError):  # `Unauthorized`
                await caller.post("/filter", args)
            assert (await caller.post("/filter", args, authorization="Bearer secret"))[0] == 200

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tls_cert_file": Path("a")}, "--tls-cert-file: needs --tls-private-key-file"),
        (
            {"insecure_http": True, "token_auth_file": Path("a")},
            "--insecure-http: callers cannot be identified",
        ),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        server_tls(options(**given))


@pytest.mark.parametrize("text", ["", "9454", ":9454", "0.0.0.0:", "0.0.0.0:99999", "0.0.0.0:a"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="must be ADDRESS:PORT"):
        ListenAddress.parse(text)


async def until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - a condition of several parts
            await asyncio.sleep(0.005)


@pytest.mark.slow
def test_exports_are_followed_and_lies_make_a_node_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = HostClock()
        api = BindingCluster(clock)
        bench, nodes = (
            ExtenderBench(api, clock),
            DecidingNodes(api, {"n1": a_profile(), "n2": a_profile()}, clock),
        )
        pair = ensure_key_pair(tmp_path, "exporter", ("127.0.0.1",))
        tls = ReloadingTLS(pair, KubeletConfiguration())
        access = PeerAccess(authority=pair.certificate)
        async with (
            served_exports(nodes, lambda: tls.context(print)) as address,
            ExportFollowers(access, bench.cluster, clock) as followers,
        ):
            followers.on_error = bench.feed.export_failed
            followers.follow("n1", f"https://{address}/n1/v1/state")
            assert [followers.has_settled] == [False]
            await until(lambda: bench.cluster.node("n1").basis is Basis.EXACT)
            assert [followers.has_settled] == [True]
            nodes.nodes["n1"].show()
            await until(lambda: bench.cluster.node("n1").generation == 2)
            # It exports the state of another node.
            followers.follow("n3", f"https://{address}/n2/v1/state")
            await until(lambda: followers.errors["content"] > 0)
            assert bench.cluster.node("n3").basis is Basis.UNKNOWN
            assert "the export is that of node n2" in bench.cluster.node("n3").note
            # It exports what cannot be.
            nodes.nodes["n1"]._export = b'{"kind": "NodeExport"}'
            nodes.nodes["n1"].generation = 3
            nodes.nodes["n1"].changed.set()
            await until(lambda: bench.cluster.node("n1").basis is Basis.UNKNOWN)
            followers.follow("n1", "")
            followers.follow("n3", "")

    asyncio.run(scenario())


@pytest.mark.parametrize("is_known", [True, False])
def test_pods_are_named_to_authenticated_callers_only(is_known: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(token_auth_file=token_file(tmp_path) if is_known else None) as caller:
            caller.headers = {"authorization": "Bearer secret"}
            pods = [a_numa_pod(f"p{at}", {"cpu": 4000, "memory": 16}, priority=at) for at in (1, 2)]
            for pod in pods:
                caller.bench.cluster.pod_bound("n1", pod_query(pod), now_s=0.0)
            caller.bench.put_export("n1", with_pods(a_profile(), *pods), generation=2)
            urgent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "u", "uid": "u"}}
            requests = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
            spec = {"priority": 9, "containers": [{"name": "c", "resources": requests}]}
            victims = {"n1": {"Pods": [{"UID": "none"}]}}
            call = {"Pod": {**urgent, "spec": spec}, "NodeNameToMetaVictims": victims}
            status, answer = await caller.post("/preempt", call)
            assert status == 200
            assert ("uid-p" in str(answer)) is is_known, answer
            victims["n1"]["Pods"] = [{"UID": "uid-p1"}, {"UID": "uid-p2"}]
            _, answer = await caller.post("/preempt", call)
            assert list(answer["NodeNameToMetaVictims"]) == ["n1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("given", [{}, {"insecure_http": True}])
def test_pods_are_bound_for_authenticated_callers_only(given: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with serving(**given) as caller:
            caller.is_tls = not given
            caller.bench.api.create_free_pod("first", 4)
            binding = {"PodName": "first", "PodNamespace": "default", "PodUID": "uid-first", "Node": "n1"}
            answers = [
                await caller.post("/bind", {**binding, **changed})
                for changed in ({}, {"PodName": "none"}, {"PodUID": "none"}, {"Node": "none"}, {"Node": ""})
            ]
            assert [status for status, _ in answers] == [403] * 5
            assert len({str(answer) for _, answer in answers}) == 1, "the answers tell pods apart"
            assert not caller.bench.api.objects[f"{PODS}/first"]["spec"].get("nodeName")

    asyncio.run(scenario())
