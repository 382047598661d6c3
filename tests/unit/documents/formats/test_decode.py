"""Quantities and times in documents."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_origin, get_type_hints

import msgspec
import pytest

from nodewright.documents.formats.decode import (
    KUBERNETES,
    NODEWRIGHT,
    SchemaType,
    checked,
    decode,
    parse_quantity,
    schema_faults,
    schema_type,
    table_lines,
)
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, ResourceRequirements
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import QuantityError


def faults(document: Any, kind: str = "Pod") -> list[str]:
    return [str(fault) for fault in schema_faults(document, kind)]


FAULTY: list[tuple[Any, list[str]]] = [
    ({"Kind": "Pod"}, ['Kind: unknown field; did you mean "kind"?']),
    ({"frobnicate": 1}, ["frobnicate: unknown field"]),
    ({"spec": []}, ["spec: Invalid value: []: must be a mapping, not a list"]),
    ({"spec": {"containers": {"name": "a"}}}, ["spec.containers: must be a list, not a mapping"]),
    ({"spec": {"containers": [None, "x"]}},
     ["spec.containers[0]: must be a mapping, not null",
      'spec.containers[1]: Invalid value: "x": must be a mapping, not a string']),
    ({"spec": {"containers": [{"resorces": {}, "args": [1, True]}]}},
     ['spec.containers[0].resorces: unknown field; did you mean "resources"?',
      "spec.containers[0].args[0]: Invalid value: 1: must be a string, not a number: put it in quotes",
      "spec.containers[0].args[1]: Invalid value: true: must be a string, not true or false: put it in quotes"]),
    ({"spec": {"hostNetwork": "true", "priority": "5", "hostIPC": "maybe"}},
     ['spec.hostNetwork: Invalid value: "true": must be true or false, not a string: remove the quotes',
      'spec.priority: Invalid value: "5": must be a 32-bit integer, not a string: remove the quotes',
      'spec.hostIPC: Invalid value: "maybe": must be true or false, not a string']),
    ({"spec": {"priority": 2**31, "terminationGracePeriodSeconds": 2**63}},
     ["spec.priority: Invalid value: 2147483648: must be a 32-bit integer, -2147483648 to 2147483647",
      ("spec.terminationGracePeriodSeconds: Invalid value: 9223372036854775808: must be a 64-bit integer, "
      "-9223372036854775808 to 9223372036854775807")]),
    ({"spec": {"priority": True, "activeDeadlineSeconds": 1.5}},
     ["spec.priority: Invalid value: true: must be a 32-bit integer, not true or false",
      "spec.activeDeadlineSeconds: Invalid value: 1.5: must be a 64-bit integer, not a number"]),
    ({"spec": {"overhead": {"cpu": "1GB2", "memory": True, "a.b/c": []}}},
     [('spec.overhead[cpu]: Invalid value: "1GB2": quantities must match the regular expression '
      "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
      "spec.overhead[memory]: Invalid value: true: must be a quantity, not true or false",
      "spec.overhead[a.b/c]: Invalid value: []: must be a quantity, not a list"]),
    ({"metadata": {"labels": {"a": 1}, "creationTimestamp": "today", "deletionTimestamp": 5}},
     ["metadata.labels[a]: Invalid value: 1: must be a string, not a number: put it in quotes",
      'metadata.creationTimestamp: Invalid value: "today": must be a time such as 2026-01-31T12:00:00Z',
      "metadata.deletionTimestamp: Invalid value: 5: must be a time such as 2026-01-31T12:00:00Z, not a number"]),
    ({"metadata": {"deletionTimestamp": "2026-02-30T12:00:00Z", "creationTimestamp": "2026-02-28T12:00:00+01:00"}},
     [('metadata.deletionTimestamp: Invalid value: "2026-02-30T12:00:00Z": '
      "must be a time such as 2026-01-31T12:00:00Z")]),
    ({"spec": {"nodeSelector": ["a"]}}, ["spec.nodeSelector: must be a mapping, not a list"]),
    ({"spec": {"a.b": 1, "c[0]": 2}}, ["spec[a.b]: unknown field", "spec[c[0]]: unknown field"]),
    ({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 1.5}}}]}},
     [("spec.containers[0].livenessProbe.httpGet.port: Invalid value: 1.5: must be an integer or a string, "
      "not a number")]),
    ({"metadata": {"managedFields": [{"manager": 5, "time": "", "subresource": {}, "fieldsv1": {}}, "x"]}},
     ["metadata.managedFields[0].manager: Invalid value: 5: must be a string, not a number: put it in quotes",
      'metadata.managedFields[0].time: Invalid value: "": must be a time such as 2026-01-31T12:00:00Z',
      "metadata.managedFields[0].subresource: Invalid value: {}: must be a string, not a mapping",
      'metadata.managedFields[0].fieldsv1: unknown field; did you mean "fieldsV1"?',
      'metadata.managedFields[1]: Invalid value: "x": must be a mapping, not a string']),
]  # fmt: skip


@pytest.mark.parametrize(("document", "wanted"), FAULTY)
def test_every_fault_is_named(document: Any, wanted: list[str]) -> None:
    assert faults(document) == wanted


SOUND: list[Any] = [
    {},
    {"spec": None, "metadata": {"labels": None}},
    {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 8080}}}]}},
    {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": "http"}}}]}},
    {"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi", "x": 0.5}}}]}},
    {
        "metadata": {
            "managedFields": [
                {
                    "fieldsV1": {"f:spec": {}},
                    "time": "2026-01-31T12:00:00Z",
                    "manager": "a",
                    "subresource": "status",
                },
                {"fieldsV1": 5, "operation": "Bad", "fieldsType": "X", "apiVersion": "", "time": None},
            ],
            "creationTimestamp": "2026-01-31T12:00:00+01:00",
        }
    },
    {"status": {"containerStatuses": [{"state": {"running": {"startedAt": None}}}]}},
    {"spec": {"ephemeralContainers": [{"name": "debug", "targetContainerName": "main"}]}},
]


@pytest.mark.parametrize("document", SOUND)
def test_what_the_api_knows_is_let_through(document: Any) -> None:
    assert faults(document) == []


def test_own_kinds_can_require_fields_and_accept_unknown_ones() -> None:
    spec = {"machineInfo": {"machine_id": "x", "topology": [{"hugepages": [{"num_pages": 1}]}]}}
    assert faults({"spec": spec}, "NodeProfile") == [
        "spec.machineInfo.topology[0].hugepages[0].page_size: Required value"
    ]


def test_the_valid_part_does_not_change_the_document() -> None:
    containers = ["x", {"name": "a", "tty": 1, "args": ["b", 2, None]}]
    document = {
        "spec": {"containers": containers, "nodeSelector": {"a": 1, "b": "c"}, "hostPID": "x", "foo": 1}
    }
    before = str(document)
    assert checked(document, "Pod").valid_part() == {
        "spec": {"containers": [{}, {"name": "a", "args": ["b", "", ""]}], "nodeSelector": {"b": "c"}}
    }
    assert str(document) == before


def test_faulty_list_items_become_empty_values_of_their_type() -> None:
    claims = {"spec": {"securityContext": {"supplementalGroups": ["x"]}, "tolerations": [5]}}
    assert checked(claims, "Pod").valid_part() == {
        "spec": {"securityContext": {"supplementalGroups": [0]}, "tolerations": [{}]}
    }
    devices = {
        "spec": {"devices": {"gpu": [[]]}, "allocations": [{"pod": "a", "container": "b", "memory": [1]}]}
    }
    assert checked(devices, "NodeProfile").valid_part() == {
        "spec": {"devices": {"gpu": [{}]}, "allocations": [{"pod": "a", "container": "b", "memory": [{}]}]}
    }


@pytest.mark.parametrize("field", NodeProfileSpec.__struct_encode_fields__)
def test_every_field_of_a_profile_can_be_read(field: str) -> None:
    (fault,) = schema_faults({"spec": {field: -1.5}}, "NodeProfile") or (None,)
    assert fault is None or "unknown field" not in fault.rule


def test_every_type_of_the_tables_is_described_down_to_its_scalars() -> None:
    described: set[str] = set()
    waiting = [schema_type(name) for table in (KUBERNETES, NODEWRIGHT) for name in table_lines(table)]
    seen = {id(schema) for schema in waiting}
    assert len(waiting) > 200
    while waiting:
        schema = waiting.pop()
        described.add(schema.kind)
        assert not schema.required or set(schema.required) <= set(schema.fields or {})
        for part in (schema.item, *(schema.fields or {}).values()):
            if part is not None and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    assert described >= {"", "list", "map", "str", "bool", "int32", "int64", "quantity", "time", "any"}


def test_blanks_around_an_amount_do_not_count() -> None:
    assert str(decode({"requests": {"memory": " 1Gi\n"}}, ResourceRequirements).requests["memory"]) == "1Gi"
    with pytest.raises(QuantityError):
        parse_quantity("1 Gi")


def test_numbers_are_amounts() -> None:
    assert str(parse_quantity(2)) == "2"
    assert str(parse_quantity(1.5)) == "1500m"


def test_times_are_decoded_with_objects() -> None:
    meta = decode({"deletionTimestamp": "1970-01-01T00:00:01Z", "deletionGracePeriodSeconds": 30}, ObjectMeta)
    assert meta.deletion_timestamp == Instant(10**9)
    assert meta.creation_timestamp is None


@pytest.mark.parametrize("wrong", ["soon", "", 5])
def test_an_invalid_time_is_rejected(wrong: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({"deletionTimestamp": wrong}, ObjectMeta)


def unchecked(schema: SchemaType, model: Any, path: str, seen: set[type]) -> Iterator[str]:
    """The fields to which the model gives a type, and the schema none."""
    if isinstance(model, UnionType):
        model = next(part for part in model.__args__ if part is not NoneType)
    if schema is schema_type("any"):
        yield from [] if model in (Any, object) else [path]
    elif get_origin(model) is tuple:
        yield from (
            [path] if schema.item is None else unchecked(schema.item, model.__args__[0], f"{path}[]", seen)
        )
    elif isinstance(model, type) and issubclass(model, msgspec.Struct) and model not in seen:
        seen.add(model)
        for field in msgspec.structs.fields(model):
            inner = (schema.fields or {}).get(field.encode_name)
            if inner is not None:
                yield from unchecked(
                    inner, get_type_hints(model)[field.name], f"{path}.{field.encode_name}", seen
                )


@pytest.mark.parametrize(("name", "model"), [("Pod", Pod), ("NodeProfile", NodeProfile)])
def test_the_schema_checks_what_the_model_types(name: str, model: type) -> None:
    seen: set[type] = set()
    assert list(unchecked(schema_type(name), model, "", seen)) == []
    assert len(seen) > 15
