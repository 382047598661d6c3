"""Objects of Kubernetes clients as mappings, recognised by what they offer."""

from datetime import UTC, datetime
from typing import Any

import pytest

from nodewright.documents.formats.python_objects import mapping_of
from nodewright.model.errors import InputError


class OfficialObject:
    """As the official client: attributes with the names of Python, and the map to those of Kubernetes."""

    attribute_map: dict[str, str] = {}

    def __init__(self, **values: Any) -> None:
        for name in self.attribute_map:
            setattr(self, name, values.get(name))

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.attribute_map}


class V1ObjectMeta(OfficialObject):
    attribute_map = {"name": "name", "creation_timestamp": "creationTimestamp"}


class V1PodSpec(OfficialObject):
    attribute_map = {"node_name": "nodeName", "containers": "containers"}


class V1Pod(OfficialObject):
    attribute_map = {"api_version": "apiVersion", "kind": "kind", "metadata": "metadata", "spec": "spec"}


class V1Deployment(V1Pod):
    pass


class OtherClientObject:
    def to_dict(self) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}


def test_the_names_of_the_official_client_become_those_of_kubernetes() -> None:
    created = datetime(2026, 5, 4, 11, 40, 51, tzinfo=UTC)
    pod = V1Pod(
        metadata=V1ObjectMeta(name="a", creation_timestamp=created),
        spec=V1PodSpec(node_name="n", containers=[{"name": "c"}]),
    )
    assert mapping_of(pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2026-05-04T11:40:51Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
    }


def test_an_object_that_was_listed_without_its_type_gets_that_of_its_class() -> None:
    value = mapping_of(V1Deployment())
    assert (value["apiVersion"], value["kind"]) == ("apps/v1", "Deployment")


def test_other_clients_give_their_objects_as_mappings() -> None:
    assert mapping_of(OtherClientObject())["metadata"] == {"name": "a"}


@pytest.mark.parametrize("value", [3, [1], None])
def test_other_values_are_errors(value: object) -> None:
    with pytest.raises(InputError, match="must be a path, YAML or JSON text"):
        mapping_of(value)
