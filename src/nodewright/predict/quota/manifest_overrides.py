"""Overrides of manifests for what-if comparisons: replaced objects and single fields."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from nodewright.documents.formats.controllers import POD_KIND, POD_TEMPLATES
from nodewright.documents.formats.inventory import Inventory, InventoryObject, inventory_from_objects
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault, InputError

_OPTION = re.compile(r"(?P<kind>[A-Za-z]+)/(?P<name>[^/:]+):(?P<path>[^=]+)=(?P<value>.*)", re.DOTALL)
_FORM = "must be KIND/NAME:PATH=VALUE, e.g. deployment/web:containers.app.requests.cpu=100m"
_PATHS = "must be replicas, hard.RESOURCE or [initC|c]ontainers.NAME.requests|limits.RESOURCE"


class FieldOverride(NamedTuple):
    """One field of one object to set; without a value it is removed."""

    text: str
    """The text of the option."""
    kind: str
    name: str
    path: str
    value: str


class _ObjectKey(NamedTuple):
    """The identity of an object."""

    kind: str
    namespace: str
    name: str
    number: int = 1


def parsed_override(text: str) -> FieldOverride:
    """The override in an option's text.

    Errors: InputError.

    >>> parsed_override("deployment/web:replicas=3")[1:]
    ('deployment', 'web', 'replicas', '3')
    """
    match = _OPTION.fullmatch(text)
    if match is None:
        raise _fault(text, _FORM)
    return FieldOverride(text, match["kind"].lower(), match["name"], match["path"], match["value"])


def inventory_with_overrides(
    inventory: Inventory, others: Sequence[InventoryObject], changes: Sequence[FieldOverride]
) -> Inventory:
    """The inventory with replaced objects, then with single fields changed.

    An object of ``others`` replaces the one of its kind, namespace and name, or is appended.
    Errors: InputError with all changes that cannot be made, and all faults of the result.
    """
    values: dict[_ObjectKey, tuple[dict[str, Any], ObjectLocation]] = {}
    for entry in _whole_objects(inventory.objects):
        key = _key(entry)
        while key in values:  # objects without a name are distinct
            key = key._replace(number=key.number + 1)
        values[key] = (entry.value, entry.location)
    for entry in _whole_objects(others):
        values[_key(entry)] = (entry.value, entry.location)
    faults = []
    for change in changes:
        keys = [key for key in values if _is_match(change, key)]
        if not keys:
            faults.append(Fault(source="--set", value=change.text, rule="no such object exists"))
        for each in keys:
            value, location = values[each]
            edited = copy.deepcopy(value)
            rule = _set(edited, change)
            if rule:
                faults.append(Fault(source="--set", value=change.text, rule=rule))
            values[each] = (edited, location)
    if faults:
        raise InputError(faults)
    return inventory_from_objects(values.values(), inventory.namespace, judges_templates=True)


def _whole_objects(entries: Iterable[InventoryObject]) -> Iterator[InventoryObject]:
    """The objects as written, without the pods of custom resources, which are loaded with these."""
    return (entry for entry in entries if not entry.manifest.is_part)


def _key(entry: InventoryObject) -> _ObjectKey:
    manifest = entry.manifest
    return _ObjectKey(manifest.kind, manifest.namespace, manifest.name)


def _is_match(change: FieldOverride, key: _ObjectKey) -> bool:
    kind = key.kind.lower()
    return change.kind in (kind, f"{kind}s") and change.name == key.name


def _set(value: dict[str, Any], change: FieldOverride) -> str:
    """Makes the change; empty, or the violated rule if it cannot be made."""
    first, _, rest = change.path.partition(".")
    setters: dict[str, Callable[[dict[str, Any], str, str], str]] = {
        "replicas": _set_replicas,
        "hard": _set_hard,
        "containers": partial(_set_amount, "containers"),
        "initContainers": partial(_set_amount, "initContainers"),
    }
    setter = setters.get(first)
    return setter(value, rest, change.value) if setter is not None else _PATHS


def _set_replicas(value: dict[str, Any], rest: str, text: str) -> str:
    template = POD_TEMPLATES.get((value["apiVersion"], value["kind"]))
    if template is None or template.replicas is None:
        return "has no replicas"
    if rest or not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        return "must be a whole number"
    holder = _inside(value, *template.path[:-1])
    holder[template.replicas] = int(text)
    return ""


def _set_hard(value: dict[str, Any], resource: str, text: str) -> str:
    if value["kind"] != "ResourceQuota" or not resource:
        return "only a ResourceQuota has hard.RESOURCE"
    _put(_inside(value, "spec", "hard"), resource, text)
    return ""


def _set_amount(field: str, value: dict[str, Any], rest: str, text: str) -> str:
    name, _, rest = rest.partition(".")
    side, _, resource = rest.partition(".")
    if side not in ("requests", "limits") or not resource:
        return _PATHS
    key = (value["apiVersion"], value["kind"])
    template = POD_TEMPLATES.get(key)
    if template is None and key != POD_KIND:
        return "has no containers"
    spec = _inside(value, *(template.path if template is not None else ()), "spec")
    container = next((each for each in spec.get(field) or () if each.get("name") == name), None)
    if container is None:
        return f'has no container "{name}" in {field}'
    _put(_inside(container, "resources", side), resource, text)
    return ""


def _inside(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """The mapping at that path, created if it does not exist."""
    for step in path:
        if value.get(step) is None:
            value[step] = {}
        value = value[step]
    return value


def _put(amounts: dict[str, Any], resource: str, text: str) -> None:
    if text:
        amounts[resource] = text
    else:
        amounts.pop(resource, None)


def _fault(text: str, rule: str) -> InputError:
    return InputError([Fault(source="--set", value=text, rule=rule)])
