"""Whatever people write is taken or refused, and what is taken means what was written."""

import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.documents.formats.decode import (
    SchemaType,
    checked,
    decode,
    schema_faults,
    schema_type,
)
from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.json_yaml import as_yaml, plain_value
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.quantity import Quantity
from nodewright.testing.strategies import pods

KINDS = {
    "Pod": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
    "PodTemplate": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "PodList": "v1",
}

TEXTS = st.sampled_from(
    ["", "a", "web-1", "1", "true", "1Gi", "-1", "1GB2", "9" * 30, "a b", "é", "x" * 300, "Always"]
)
NUMBERS = st.sampled_from([0, 1, -1, 3, 80, 2**31, 2**63, 10**30, 0.5, 1e30])
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXTS,
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "bytes": st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["128Gi", "1e9", "0"])),
    "kibibytes": st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["2Mi", "1Gi"])),
    "float": st.sampled_from([0, 0.5, 1e30]),
    "condition": st.sampled_from([node_condition.value for node_condition in NodeCondition]),
    "quantity": st.sampled_from(["1", "250m", "1.5Gi", "-1", " 2 ", "1e3", "100n", 0, 2, 0.5, 10**30]),
    "time": st.just("2026-01-31T12:00:00Z"),
    "any": ANYTHING,
}


def test_every_field_type_has_an_empty_value() -> None:
    def kinds(shape: SchemaType) -> set[str]:
        if shape.fields is not None:
            return {kind for field in shape.fields.values() for kind in kinds(field)}
        return kinds(shape.item) if shape.item is not None else {shape.kind}

    assert kinds(schema_type("NodeProfile")) | kinds(schema_type("Scenario")) <= RIGHT.keys()


@st.composite
def documents(draw: st.DrawFn, shape: SchemaType, *, depth: int = 0, wrong: bool = False) -> Any:
    """A document of that shape; with `wrong` here and there something else, or a field that is none."""
    if wrong and draw(st.integers(0, 15)) == 0:
        return draw(ANYTHING)
    deeper = depth + 1
    if shape.fields is not None:
        names = sorted(shape.fields)
        chosen = (
            draw(st.lists(st.sampled_from(names), max_size=max(5 - depth // 2, 1), unique=True))
            if names
            else []
        )
        chosen += [name for name in shape.required if name not in chosen]
        made = {name: draw(documents(shape.fields[name], depth=deeper, wrong=wrong)) for name in chosen}
        if wrong and draw(st.integers(0, 15)) == 0:
            made[draw(TEXTS)] = draw(ANYTHING)
        return made
    if shape.item is not None:
        items = (
            draw(st.lists(documents(shape.item, depth=deeper, wrong=wrong), max_size=2)) if depth < 14 else []
        )
        return items if shape.kind == "list" else {f"k{number}": item for number, item in enumerate(items)}
    return draw(RIGHT[shape.kind])


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """An object as people write them, right and wrong."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    head = {"apiVersion": KINDS[kind], "kind": kind}
    if kind == "PodList":
        return {**head, "items": draw(st.lists(documents(schema_type("Pod"), wrong=True), max_size=3))}
    made = draw(documents(schema_type(kind), wrong=True))
    return {**made, **head} if isinstance(made, dict) else head


@given(
    content=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode(errors="replace"))
)
def test_any_bytes_become_documents_or_an_input_error(content: bytes) -> None:
    try:
        yaml_documents = parse_documents(content, "any")
    except InputError as error:
        assert error.faults  # noqa: PT017 - either is an answer
    else:
        assert all(document.value is not None for document in yaml_documents)


@given(text=st.text(alphabet="ab:-[]{}?,&*!|>'\"#%@` \n01.~<y", max_size=80))
def test_any_text_of_yamls_signs_becomes_documents_or_an_input_error(text: str) -> None:
    try:
        yaml = read_yaml(text, "any")
    except InputError as error:
        assert error.faults  # noqa: PT017 - either is an answer
    else:
        json.dumps(yaml, allow_nan=False)


@given(value=objects())
def test_any_object_becomes_workloads_or_faults_with_a_source_and_a_text(value: dict[str, Any]) -> None:
    try:
        loaded = workloads_from(json.dumps(value).encode(), "any")
    except InputError as error:
        assert error.faults  # noqa: PT017 - either is an answer
        for fault in error.faults:
            assert fault.source.startswith("any")
            assert fault.rule or fault.error
            str(fault).encode()
    else:
        assert isinstance(loaded, LoadedWorkloads)


@given(value=documents(schema_type("NodeProfile"), wrong=True))
def test_any_profile_is_accepted_or_rejected(value: Any) -> None:
    head = {"apiVersion": "nodewright.dev/v1alpha1", "kind": "NodeProfile"}
    content = json.dumps({**value, **head} if isinstance(value, dict) else value)
    try:
        profile = profile_from_bytes(content.encode(), "any")
    except InputError as error:
        assert error.faults  # noqa: PT017 - either is an answer
    else:
        assert profile.kind == "NodeProfile"


@given(value=documents(schema_type("Pod")))
def test_a_document_with_valid_fields_and_types_can_be_decoded(value: Any) -> None:
    assert schema_faults(value, "Pod") == []
    decode(value, Pod)


@given(value=documents(schema_type("Pod"), wrong=True))
def test_the_valid_part_has_no_faults_and_can_be_decoded(value: Any) -> None:
    if not isinstance(value, dict):
        return
    sound = checked(value, "Pod").valid_part()
    assert schema_faults(sound, "Pod") == []
    decode(sound, Pod)


@given(value=documents(schema_type("NodeProfile")))
def test_a_profile_with_the_right_fields_can_be_decoded(value: Any) -> None:
    assert schema_faults(value, "NodeProfile") == []
    decode(checked(value, "NodeProfile").valid_part(), NodeProfile)


def as_document(value: Any) -> Any:
    """The object as a document without what is empty, as people and servers write it."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value, builtin_types=(Quantity,), enc_hook=lambda amount: amount)
    if isinstance(value, dict):
        return {key: as_document(item) for key, item in value.items() if item not in ("", None, (), {})}
    return list(map(as_document, value)) if isinstance(value, tuple) else plain_value(value)


@given(pod=pods())
def test_pods_round_trip_through_yaml(pod: Pod) -> None:
    (value,) = read_yaml(as_yaml(as_document(pod)), "any")
    back = decode(value, Pod)
    assert back == pod
    assert as_document(back) == as_document(pod)


@given(
    text=st.one_of(
        st.from_regex(r"[-+]?[0-9oxbeE._]{1,6}", fullmatch=True), st.text(st.characters(codec="utf-8"))
    )
)
@example("n")
@example("1e3")
@example("0o17")
@example("-.inf")
@example("1_000")
@example("\x85")
@example("\u2028a\u2029")
def test_text_that_is_written_is_read_as_text(text: str) -> None:
    assert read_yaml(as_yaml({text: [text]}), "any") == [{text: [text]}]


@given(pod=pods())
def test_what_the_structs_write_passes_the_check_of_fields(pod: Pod) -> None:
    assert schema_faults(as_document(pod), "Pod") == []


@given(value=st.dictionaries(TEXTS, ANYTHING, min_size=1, max_size=4))
def test_json_means_the_same_read_as_yaml(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    (document,) = parse_documents(text.encode(), "any")
    (read,) = read_yaml(text, "any")
    assert json.dumps(document.value) == json.dumps(read) or str(10**30) in text
