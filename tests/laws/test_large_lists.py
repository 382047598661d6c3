"""Large Lists are read item by item, and pods that are alike share what was found: the answers stay those of the plain ways."""

import json
import re
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.formats import documents
from nodewright.documents.formats.decode import checked, decode
from nodewright.documents.formats.documents import InputFile, parse_documents
from nodewright.documents.formats.json_documents import JSONValueDecoder, quick_json_value
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.workloads import AlikePods
from nodewright.engine.core.requests.resource_breakdown import AlikeBreakdowns, pod_resource_breakdown
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import ContainerStatus, ObjectMeta, PodCondition, PodSpec, PodStatus
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.strategies import pods, requirements

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
BROKEN_ITEMS = (
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": 1,}',
    "[" * 127 + "]" * 127,
    "9" * 5000,
    '"\\ud800"',
    '"\x01"',
    '{"a": [1, 2}',
)
ITEMS = VALUES.map(json.dumps) | st.sampled_from(BROKEN_ITEMS)
MEMBERS = st.lists(
    st.tuples(st.sampled_from(("apiVersion", "kind", "metadata", "items", "other")), VALUES.map(json.dumps)),
    max_size=3,
)


def outcome(content: bytes, *, item_by_item: bool) -> list[Any]:
    """The documents with their items as JSON, or the faults."""
    try:
        read = parse_documents(content, "list.json", item_by_item=item_by_item)
        return [json.dumps(document.value, default=list) for document in read]
    except InputError as error:
        return list(error.faults)


@pytest.fixture(autouse=True)
def _small_lists_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LARGE_BYTES", 0)


@given(items=st.lists(ITEMS, max_size=4), members=MEMBERS, after=st.sampled_from(("", "{}", " ", "]", ",")))
@example(items=['{"a": -1e999}', "2.0"], members=[("apiVersion", "0.0")], after="")
@example(items=["0.0"], members=[("apiVersion", "0.0"), ("kind", "1e999")], after="")
@example(items=["0.0", '{"a": NaN}'], members=[("apiVersion", "0.0")], after="")
def test_items_read_one_by_one_are_those_of_the_whole(
    items: list[str], members: list[tuple[str, str]], after: str
) -> None:
    parts = [f'"{name}": {value}' for name, value in members]
    parts.insert(len(parts) // 2, '"items": [' + " ,\n".join(items) + "]")
    content = ("{" + ", ".join(parts) + "}" + after).encode()
    assert outcome(content, item_by_item=True) == outcome(content, item_by_item=False)


PIECES = (
    ":",
    "a",
    "\\u003a",
    "\\u003A",
    "\\\\u003a",
    "\\u0022",
    '\\"',
    "{",
    "[",
    "é",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\\\",
)
STRINGS = st.lists(st.sampled_from(PIECES), max_size=4).map(lambda pieces: f'"{"".join(pieces)}"')
NUMBERS = st.sampled_from(
    ("0", "-0", "1.0", "1e3", "1E400", "01", "NaN", "9" * 30, "9" * 5000, "-1.5e-7", "null", "true")
)
TEXTS = st.recursive(
    STRINGS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(STRINGS, st.sampled_from((":", " : ")), inner), max_size=4).map(
            lambda members: "{" + ",".join(map("".join, members)) + "}"
        )
    ),
    max_leaves=8,
)


@given(TEXTS | ITEMS, st.sampled_from(("", " ", "{}", ",")), st.integers(1, 4))
def test_json_that_is_decoded_quickly_is_what_the_slow_decoder_finds(
    text: str, after: str, max_depth: int
) -> None:
    quick = quick_json_value((text + after).encode(), max_depth)
    if quick is msgspec.UNSET:
        return
    decoder = JSONValueDecoder(max_depth)
    value, end = decoder.decode(text + after)
    assert not decoder.duplicate_keys
    assert not (text + after)[end:].strip()
    assert repr(quick) == repr(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": {"b": 1.0}, "c": "\\u00e9:"}', {"a": {"b": 1}, "c": "é:"}),
        ('{"a": 1, "a": 2}', msgspec.UNSET),
        ('{"a": {"b": 1, "c": 2}, "a": "::"}', msgspec.UNSET),
        ('{"\\u003a": 1}', msgspec.UNSET),
        ('{"a": 1} {}', msgspec.UNSET),
        ("[[[]]]", msgspec.UNSET),
    ],
)
def test_what_is_decoded_quickly(text: str, value: object) -> None:
    assert quick_json_value(text.encode(), 2) == value


def test_a_list_with_the_kind_after_its_items_is_read_item_by_item() -> None:
    content = b'{"apiVersion": "v1", "items": [{"kind": "Pod"}, 1], "kind": "List"}'
    (document,) = parse_documents(content, "list.json", item_by_item=True)
    items = document.value["items"]
    assert not isinstance(items, list)
    assert (len(items), list(items), items[0], items[-1], items[1:]) == (
        2,
        [{"kind": "Pod"}, 1],
        {"kind": "Pod"},
        1,
        [1],
    )


# ---------------------------------------------------------------- pods that are alike

FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"nodeName": "node-1"},
    {"nodeName": "Not a name"},
    {"nodeName": 7},
    {"restartPolicy": "Sometimes"},
    {"volumes": [{"name": "kube-api-access-abcde", "projected": {}}]},
    {"volumes": [{"name": "kube-api-access-fghij", "projected": {}}]},
    {"volumes": [{"name": "kube-api-access-*", "projected": {}}]},
    {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
    {"unknown": 1},
    {"hostname": None},
    {"ephemeralContainers": [{"name": "debug", "image": "debug"}]},
    {"schedulingGates": [{"name": "example.com/gate"}]},
    {"priorityClassName": "system-node-critical"},
)
METADATA: tuple[dict[str, Any], ...] = (
    {"uid": "a-1"},
    {"name": "Not a name"},
    {"labels": {"app": None}},
    {"annotations": {"a": 1}},
    {"annotations": {"kubernetes.io/config.mirror": "x"}},
)
STATUSES: tuple[dict[str, Any], ...] = (
    {},
    {"phase": "Running"},
    {"startTime": "yesterday"},
    {"podIPs": [None]},
)


PARTS = {"spec": FIELDS, "metadata": METADATA, "status": STATUSES}
MOUNTS = [{"name": "kube-api-access-abcde", "mountPath": "/token"}]
CONTAINERS: tuple[list[dict[str, Any]], ...] = (
    [{"name": "main", "image": "a"}],
    [{"name": "main", "image": "a", "volumeMounts": MOUNTS}],
    [],
)


def pod_document(part: str, change: dict[str, Any], containers: list[dict[str, Any]]) -> dict[str, Any]:
    """A pod with one change."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {"containers": containers},
        "status": {},
    }
    return {**pod, part: {**pod[part], **change}}


@pytest.mark.parametrize("containers", CONTAINERS)
def test_a_pod_is_checked_the_same_way_whatever_pod_was_before_it(containers: list[dict[str, Any]]) -> None:
    changes = [(part, change) for part, table in PARTS.items() for change in table]
    variants = [pod_document(part, change, containers) for part, change in changes]
    files = [InputFile("pod.json", json.dumps(value).encode()) for value in variants]
    alone = [loaded(file) for file in files]
    for before, after in product(range(len(files)), repeat=2):
        alike, plain = AlikePods(), checked(variants[after], "Pod")
        checked_before = alike.check(variants[before], "Pod")
        alike.add_valid(checked_before, decode(checked_before.check.valid_part()["spec"], PodSpec))
        check = alike.check(variants[after], "Pod").check
        assert (check.faults, check.valid_part()) == (plain.faults, plain.valid_part())
        assert loaded(files[before], files[after]).faults == alone[before].faults + alone[after].faults


CLAIM = {
    "volumeClaimTemplate": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    }
}
CLAIMED = {"persistentVolumeClaim": {"claimName": "pod-2-data"}}
TOKENS: tuple[dict[str, Any], ...] = (
    {"volumes": [{"name": "kube-api-access-abcde", "projected": {}}]},
    {"volumes": [{"name": "kube-api-access-fghij", "projected": {}}], "nodeName": "node-2"},
    {"volumes": [{"name": "kube-api-access-abcde", "projected": {}}, {"name": "data"}]},
    {"volumes": [{"name": "kube-api-access-fghij", "projected": {}}, {"name": "data"}]},
    {"volumes": [{"name": f"kube-api-access-{end}", "projected": {}} for end in ("abcde", "fghij")]},
    {"volumes": [{"name": f"kube-api-access-{end}", "projected": {}} for end in ("fghij", "abcde")]},
    {"volumes": [{"name": f"kube-api-access-{end}", "projected": {}} for end in ("fghij", "fghij")]},
    {"volumes": [{"name": "data", "ephemeral": CLAIM}]},
    {"volumes": [{"name": "data", "ephemeral": CLAIM}, {"name": "kube-api-access-abcde", **CLAIMED}]},
)
AMOUNTS = {"requests": {"memory": "1.5Gi"}, "limits": {"cpu": "0.1001", "memory": "2Gi"}}
PORTS = [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]


@example(
    # Mounts of a volume whose claim has too long a name for the pod.
    tokens=[TOKENS[0], TOKENS[8], TOKENS[0], TOKENS[8]],
    nodes=[""] * 4,
    settings={},
    container={
        "name": "main",
        "image": "a",
        "volumeMounts": [*MOUNTS, {"name": "data", "mountPath": "/data"}],
    },
    names=["pod", "pod", "pod", "p" * 248],
    is_stored=False,
)
@given(
    tokens=st.lists(st.sampled_from(TOKENS), min_size=2, max_size=4),
    nodes=st.lists(st.sampled_from(("", "node-1", "node-2")), min_size=4, max_size=4),
    settings=st.fixed_dictionaries(
        {},
        optional={
            "hostNetwork": st.booleans(),
            "priorityClassName": st.sampled_from(("system-node-critical", "unknown")),
            "runtimeClassName": st.just("unknown"),
            "resources": st.just({"limits": {"cpu": "3"}}),
            "initContainers": st.just([{"name": "first", "image": "a", "volumeMounts": MOUNTS}]),
        },
    ),
    container=st.fixed_dictionaries(
        {"name": st.just("main"), "image": st.just("a")},
        optional={
            "resources": st.just(AMOUNTS),
            "ports": st.just(PORTS),
            "volumeMounts": st.just([*MOUNTS, {"name": "data", "mountPath": "/data"}]),
            "args": st.just(["kube-api-access-abcde"]),
            "env": st.just([{"name": "EMPTY", "value": None}]),
        },
    ),
    names=st.lists(st.sampled_from(("pod", "p" * 248)), min_size=4, max_size=4),
    is_stored=st.booleans(),
)
def test_a_pod_is_read_the_same_way_whatever_pods_like_it_were_before_it(
    tokens: list[dict[str, Any]],
    nodes: list[str],
    settings: dict[str, Any],
    container: dict[str, Any],
    names: list[str],
    is_stored: bool,
) -> None:
    files = []
    for number, (volumes, node, name) in enumerate(zip(tokens, nodes, names, strict=False)):
        text = json.dumps({**settings, "containers": [container], "nodeName": node, **volumes})
        if number % 2:  # as the mounts of a pod with another token
            text = text.replace("abcde", "klmno")
        meta = {"name": f"{name}-{number}", **({"uid": f"uid-{number}"} if is_stored else {})}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": json.loads(text)}
        files.append(InputFile("pod.json", json.dumps(document).encode()))
    alone, together = [loaded(file) for file in files], loaded(*files)
    assert together.faults == [fault for each in alone for fault in each.faults]
    if together.faults:
        return
    results = [each.result() for each in alone]
    assert together.result().warnings == tuple(text for each in results for text in each.warnings)
    for number, result in enumerate(results):
        workload = together.result().workloads[number]
        assert replace(workload, spec_of_alike=None) == result.workloads[0]
        if workload.spec_of_alike is not None:
            shared, own = map(without_token, (workload.spec_of_alike, workload.pod.spec))
            assert shared == replace(own, node_name="")


@pytest.mark.parametrize(
    ("name", "before", "volumes"),
    [
        ("p" * 250, TOKENS[7], TOKENS[7]),
        ("pod-2", TOKENS[8], TOKENS[8]),
        ("pod", TOKENS[4], TOKENS[6]),
    ],
)
def test_names_of_pods_and_of_tokens_volumes_are_checked_of_each_pod(
    name: str, before: dict[str, Any], volumes: dict[str, Any]
) -> None:
    valid, invalid = (
        pod_document("metadata", {"name": each}, [{"name": "main", "image": "a"}]) for each in ("pod-1", name)
    )
    files = [
        InputFile("pod.json", json.dumps({**document, "spec": {**document["spec"], **part}}).encode())
        for document, part in ((valid, before), (invalid, volumes))
    ]
    assert not loaded(files[0]).faults
    assert len(loaded(*files).faults) == 1
    assert loaded(*files).faults == loaded(files[1]).faults


def without_token(spec: PodSpec) -> PodSpec:
    """The spec with the same name for each volume with a token."""
    text = re.sub(rb"kube-api-access-[a-z]{5}", b"token", msgspec.json.encode(spec, enc_hook=str))
    decoded: PodSpec = decode(msgspec.json.decode(text), PodSpec)
    return decoded


def loaded(*files: InputFile) -> ManifestLoader:
    loader = ManifestLoader("default")
    for file in files:
        loader.add_file(file)
    return loader


@st.composite
def pod_statuses(draw: st.DrawFn) -> PodStatus:
    """Statuses with resizes."""
    containers = tuple(
        ContainerStatus(name=name, resources=draw(st.none() | requirements()))
        for name in draw(st.lists(st.sampled_from(("c0", "c1", "i0")), unique=True))
    )
    reason = draw(st.sampled_from(("", "Infeasible", "Deferred")))
    return PodStatus(
        container_statuses=containers,
        resources=draw(st.none() | requirements()),
        qos_class=draw(st.sampled_from(("", "Guaranteed", "BestEffort"))),
        resize=reason,
        conditions=(PodCondition(type="PodResizePending", reason=reason),) if reason else (),
    )


@given(pods(), st.lists(pod_statuses(), min_size=1, max_size=3), st.sampled_from(sorted(RELEASE_TABLES)))
def test_breakdowns_of_pods_that_are_alike_are_those_of_each(
    pod: Any, statuses: list[PodStatus], release: Any
) -> None:
    gates = default_gates(RELEASE_TABLES[release])
    breakdowns = AlikeBreakdowns(1 << 34, gates)
    for number, status in enumerate((pod.status, *statuses, pod.status)):
        each = replace(pod, status=status, metadata=ObjectMeta(name=f"pod-{number}"))
        assert breakdowns.breakdown(each) == pod_resource_breakdown(each, 1 << 34, gates=gates)
