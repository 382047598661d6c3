"""Every cache of a process that stays is bounded, and the threat model names it."""

import ast
import gc
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.values.bounded_cache import MAX_TEXT_LENGTH, BoundedCache, cached_texts
from nodewright.scheduling.extender import extender_service
from nodewright.scheduling.verdicts import shared_states

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "nodewright"
SMALL = {"int", "bool", "type", "type[msgspec.Struct]"}
"""Types of which no argument is large, or has more values than memory has room for."""
_COMMAND = "lives as long as a command"
EXEMPT = {
    "documents/formats/object_location.py": _COMMAND,
    "documents/output/report_schemas.py": "names of this package's modules",
    "documents/profiles/catalogue.py": _COMMAND,
    "documents/profiles/machine_shapes.py": _COMMAND,
    "engine/admission/api_server/charges.py": _COMMAND,
    "engine/core/claims/node_selection.py": _COMMAND,
    "engine/core/devices/device_assignment.py": "numbers of devices and NUMA nodes",
    "engine/core/lending/predictors.py": "the times of two histories, whose samples are bounded, and pairs of numbers",
    "engine/core/memory/memory_allocation.py": "NUMA nodes of machines, whose number is bounded",
    "cluster/client/http_connections.py": "the headers that this process sends, 512 sets at most",
    "model/values/quantity.py": "texts are bounded where they enter",
    **{f"predict/lint/{name}.py": _COMMAND for name in ("lint_input", "lint_model")},
    **{f"predict/lint/rules/{name}_rules.py": _COMMAND for name in ("claim", "manager", "namespace", "node")},
}
"""Modules whose caches live as long as one command, or whose content is bounded where it enters."""
THE_CACHE = "model/values/bounded_cache.py"


def named_modules() -> set[str]:
    """The modules of the table."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    table = text.partition("## Caches of processes that stay")[2].partition("\n## ")[0]
    return {row.split("|")[2].strip().strip("`") for row in table.splitlines() if row.startswith("| ")} - {
        "In"
    }


def caches(tree: ast.Module) -> Iterator[str]:
    """What a module caches by what others write: the names of classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.startswith(("BoundedCache[", "OrderedDict", "OrderedDict[")):
                yield name
        elif isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            takes_content = any(
                argument.annotation is None or ast.unparse(argument.annotation) not in SMALL
                for argument in (*node.args.args, *node.args.kwonlyargs)
            )
            if takes_content and any(
                re.match(r"(functools\.)?(lru_cache\b|cache$)", decorator) for decorator in decorators
            ):
                yield node.name


def test_the_threat_model_names_every_module_with_a_cache_of_what_others_write() -> None:
    texts = {path: path.read_text("utf-8") for path in SOURCES.rglob("*.py")}
    found = {
        path.relative_to(SOURCES).as_posix()
        for path, text in texts.items()
        if any(word in text for word in ("BoundedCache", "OrderedDict", "lru_cache", "@cache"))
        if any(caches(ast.parse(text)))
    }
    unseen = {"model/kubernetes/objects.py", "documents/formats/kubectl_yaml.py"}
    assert found - EXEMPT.keys() - {THE_CACHE} | unseen == named_modules()
    assert not EXEMPT.keys() - found, "without a cache"


def test_a_cache_keeps_no_more_than_its_bytes() -> None:
    cache = BoundedCache[str, str](10_000)
    for number in range(100):
        cache.put(str(number), "value", 1000)
        assert cache.used_bytes <= 10_000
    assert [cache.get(key) for key in ("0", "99")] == [None, "value"]
    cache.put("99", "large", 5000)
    assert cache.get("99") is None, "an entry of more than a quarter would empty the cache"
    cache.clear()
    assert (len(cache), cache.used_bytes) == (0, 0)


def test_what_was_used_last_stays() -> None:
    cache = BoundedCache[str, int](1 << 20, max_entries=2)
    cache.put("a", 1, 1)
    cache.put("b", 2, 1)
    assert cache.get("a") == 1
    cache.put("c", 3, 1)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_long_texts_are_not_cached() -> None:
    computed: list[int] = []

    @cached_texts(8)
    def length(text: str) -> int:
        computed.append(len(text))
        return len(text)

    for text in ("short", "short", "x" * (MAX_TEXT_LENGTH + 1), "x" * (MAX_TEXT_LENGTH + 1)):
        assert length(text) == len(text)
    assert computed == [5, MAX_TEXT_LENGTH + 1, MAX_TEXT_LENGTH + 1]


def a_call(pod: dict[str, Any], **nodes: Any) -> bytes:
    return msgspec.json.encode({"Pod": pod, **nodes})


def hostile_pod(number: int, size: int) -> dict[str, Any]:
    """A pod that no other equals, with texts of this size where they reach the decisions."""
    requests = {"cpu": "1", f"example.com/{number}{'x' * size}": "1"}
    container = {"name": "a", "resources": {"requests": requests, "limits": requests}}
    meta = {"name": "p", "namespace": "d", "uid": f"u{number}"}
    return {"metadata": meta, "spec": {"containers": [container]}}


def large_nodes(number: int, size: int) -> bytes:
    node = {"metadata": {"name": "n1", "annotations": {"a": f"{number}{'x' * size}"}}}
    return a_call(hostile_pod(0, 0), Nodes={"items": [node]})


def many_names(number: int, size: int) -> bytes:
    return a_call(hostile_pod(0, 0), NodeNames=["n1", f"{number}{'x' * size}"])


def large_pods(number: int, size: int) -> bytes:
    return a_call(hostile_pod(number, size), NodeNames=["n1"])


@pytest.mark.parametrize(
    ("call", "size"), [(large_nodes, 1_500_000), (many_names, 1_500_000), (large_pods, 400_000)]
)
def test_calls_of_strangers_leave_little_behind(
    call: Callable[[int, int], bytes], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("MAX_STATES_BYTES", "MAX_PODS_BYTES", "MAX_VERDICTS_BYTES"):
        monkeypatch.setattr(shared_states, bound, 1 << 20)
    monkeypatch.setattr(extender_service, "_MAX_CALLS_BYTES", 1 << 20)
    clock = HostClock()
    bench = ExtenderBench(BindingCluster(clock), clock)
    bench.put_export("n1", a_profile())
    bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
    bench.service.filter(call(0, 10))
    tracemalloc.start()
    try:
        for number in range(40):
            bench.service.filter(call(number, size))
            bench.service.prioritize(call(number, size))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < size * 40 / 3
    for cache in gc.get_objects():
        if isinstance(cache, BoundedCache):
            assert cache.used_bytes <= cache.max_bytes
