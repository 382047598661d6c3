"""Good answers of API servers, kubeconfigs and credentials, and what reads them: `tools.fuzz` damages them."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from nodewright.cluster.client.access import AccessOptions, ExecPlugin
from nodewright.cluster.client.cluster_api import ApiError, json_error
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.list_watch import ObjectPage, decode_event, decode_page, lines_of
from nodewright.cluster.client.request_credentials import run_plugin
from nodewright.cluster.client.tls import tls_context
from nodewright.cluster.objects.node_sources import read_cluster_node
from nodewright.cluster.objects.object_names import KINDS, ClusterName
from nodewright.cluster.objects.reader import Selection, pod_event_sentences, read_objects
from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.profiles.node_export import (
    bytes_digest,
    encode_node_export,
    node_export,
    read_node_export,
)
from nodewright.documents.profiles.node_profiles import load_profile
from nodewright.model.errors import JSON_ERRORS, InputError
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.instant import Instant
from nodewright.scheduling.verdicts.export_reader import ExportReader
from nodewright.scheduling.verdicts.extender_protocol import decode_binding, decode_call, decode_preemption
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster
from tools.source import ROOT

Reader = Callable[[bytes], object]
_W3 = ROOT / "examples/worker-3"
_EXEC = "client.authentication.k8s.io/v1"
_NODE = "worker-3"

KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: shop
clusters:
- {name: shop, cluster: {server: "https://127.0.0.1:6443", tls-server-name: api, insecure-skip-tls-verify: true, proxy-url: "http://127.0.0.1:3128"}}
contexts:
- {name: shop, context: {cluster: shop, user: me, namespace: web}}
users:
- {name: me, user: {token: abc, as: you, as-groups: [a], as-user-extra: {b: [c]}}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "true", args: [a], env: [{name: A, value: b}], interactiveMode: Never}}}
"""
CREDENTIAL = json.dumps(
    {
        "kind": "ExecCredential",
        "apiVersion": _EXEC,
        "status": {"token": "t", "expirationTimestamp": "2026-05-01T10:00:00Z"},
    }
).encode()
EVENTS = json.dumps(
    {
        "kind": "EventList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": [
            {
                "metadata": {"name": "a"},
                "reason": "Failed",
                "message": "no",
                "count": 2,
                "source": {"component": "kubelet"},
                "lastTimestamp": "2026-05-01T10:00:00Z",
            }
        ],
    }
).encode()
WATCH = b"""{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}}
{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}
{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old","details":{"retryAfterSeconds":3}}}
"""

_CALLED_POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
}
_FILTER_CALL = json.dumps({"Pod": _CALLED_POD, "Nodes": None, "NodeNames": ["a", "b"]}).encode()
_FULL_CALL = json.dumps(
    {"Pod": _CALLED_POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None}
).encode()
_PREEMPT_CALL = json.dumps(
    {
        "Pod": _CALLED_POD,
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u2"}], "NumPDBViolations": 1}},
    }
).encode()
_BIND_CALL = json.dumps({"PodName": "web", "PodNamespace": "shop", "PodUID": "u1", "Node": "a"}).encode()


class _Answers:
    """An API server that answers every request whose path has a text with the same bytes."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._answers = answers

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        for part, content in self._answers.items():
            if part in path:
                return content
        raise ApiError("GET", f"{path} {query or ''}", "404 Not Found", status=404)

    async def list_pages(
        self, path: str, *, label_selector: str = "", field_selector: str = "", page_size: int = 500
    ) -> AsyncIterator[ObjectPage]:
        content = await self.get(path, {"selectors": f"{label_selector} {field_selector} {page_size}"})
        try:
            page, _ = decode_page(content)
        except JSON_ERRORS as error:
            raise json_error("GET", path, "", error) from None
        yield page


def cluster_targets() -> Mapping[str, tuple[Reader, tuple[bytes, ...]]]:
    """Readers and good input by name; they refuse with InputError and HostError."""
    parts = {
        "proxy/configz": (_W3 / "configz.json").read_bytes(),
        "proxy/pods": (_W3 / "pods.json").read_bytes(),
        "noderesourcetopologies": (_W3 / "topology.yaml").read_bytes(),
        "/pods": (_W3 / "pods.json").read_bytes(),
        "/nodes/": (_W3 / "node.json").read_bytes(),
    }
    pods = parts["/pods"]
    recorded = (ROOT / "tests/golden/errors/workloads.jsonl").read_bytes().splitlines()
    return {
        **{
            f"{part} of an API server": (_node_reader(parts, part), (content,))
            for part, content in parts.items()
        },
        "list of an API server": (_read_list, (pods, EVENTS)),
        "events of an API server": (_read_events, (EVENTS,)),
        "watch of an API server": (_read_watch, (WATCH,)),
        "filter call of a scheduler": (decode_call, (_FILTER_CALL, _FULL_CALL)),
        "preempt call of a scheduler": (decode_preemption, (_PREEMPT_CALL,)),
        "bind call of a scheduler": (decode_binding, (_BIND_CALL,)),
        "kubeconfig": (_read_kubeconfig, (KUBECONFIG,)),
        "credential of a plugin": (_read_credential, (CREDENTIAL,)),
        "workloads": (
            _read_workloads,
            tuple(json.dumps(json.loads(line)["object"]).encode() for line in recorded),
        ),
        "export of a node": (lambda content: read_node_export(content, "export.json"), (_export(),)),
        "export after another one": (_read_next_export, (_export(),)),
    }


def _node_reader(parts: Mapping[str, bytes], part: str) -> Reader:
    return lambda content: asyncio.run(read_cluster_node(_Answers({**parts, part: content}), _NODE))


def _read_list(content: bytes) -> None:
    names = [ClusterName(kind=KINDS[kind], name="", word=kind) for kind in ("pods", "deploy")]
    asyncio.run(read_objects(_Answers({"": content}), names, Selection(namespace="")))


def _read_events(content: bytes) -> None:
    pod = Pod(metadata=ObjectMeta(name="web", namespace="shop"))
    asyncio.run(pod_event_sentences(_Answers({"": content}), pod))


def _read_watch(content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 50):
            yield content[start : start + 50]

    async def read() -> None:
        try:
            async for line in lines_of(chunks()):
                with suppress(ApiError):  # As for an event that states an error.
                    decode_event(line, "/pods")
        except EOFError:
            return

    asyncio.run(read())


def _read_kubeconfig(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "config")
        path.write_bytes(content)
        access = load_access(AccessOptions(kubeconfig=str(path)), {"HOME": directory})
    tls_context(access.tls, None, None)


def _read_workloads(content: bytes) -> None:
    with suppress(InputError):  # Most of the recorded ones are refused.
        workloads_from(content, "web.json")


def _read_credential(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        plugin = ExecPlugin(
            command="cat", arguments=(file.name,), api_version=_EXEC, interactive_mode="Never"
        )
        asyncio.run(run_plugin(plugin, 5.0))


def _read_next_export(content: bytes) -> None:
    """Reads the content after a valid export of the node, with a digest that fits its profile."""
    reader = ExportReader()
    reader.read(_export(), "export.json")
    try:
        document = msgspec.json.decode(content)
        profile = msgspec.json.encode(document["profile"], order="sorted")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return  # Without a profile it is read as a first one.
    content = msgspec.json.encode(
        {**document, "digest": bytes_digest(profile), "profile": msgspec.Raw(profile)}
    )
    cluster = TrackedCluster()
    export = reader.read(content, "export.json")
    cluster.put_export("n", export.profile, generation=export.generation, now_s=0.0)


def _export() -> bytes:
    profile = load_profile(str(ROOT / "examples/rehearsal/worker-3.yaml"))
    observed = Instant.parse("2026-05-01T10:00:00Z")
    return encode_node_export(node_export(profile, generation=1, observed_time=observed))
