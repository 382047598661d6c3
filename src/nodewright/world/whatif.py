"""Other versions of objects, to be compared with those that there are."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nodewright.world.errors import Fault, InputError
from nodewright.world.inventory import Entry, Inventory, inventory_of
from nodewright.world.places import Place
from nodewright.world.templates import POD, TEMPLATES

_OPTION = re.compile(r"(?P<kind>[A-Za-z]+)/(?P<name>[^/:]+):(?P<path>[^=]+)=(?P<value>.*)", re.DOTALL)
_FORM = "must be KIND/NAME:PATH=VALUE, e.g. deployment/web:containers.app.requests.cpu=100m"
_PATHS = "must be replicas, hard.RESOURCE or [initC|c]ontainers.NAME.requests|limits.RESOURCE"


class Change(NamedTuple):
    """One field of one object to be set; without a value it is taken out."""

    text: str
    """As it was asked for."""
    kind: str
    name: str
    path: str
    value: str


class _Key(NamedTuple):
    """What tells objects apart."""

    kind: str
    namespace: str
    name: str
    number: int = 1


def change_of(text: str) -> Change:
    """The change that the text asks for.

    Errors: InputError.

    >>> change_of("deployment/web:replicas=3")[1:]
    ('deployment', 'web', 'replicas', '3')
    """
    match = _OPTION.fullmatch(text)
    if match is None:
        raise _fault(text, _FORM)
    return Change(text, match["kind"].lower(), match["name"], match["path"], match["value"])


def changed(inventory: Inventory, others: Sequence[Entry], changes: Sequence[Change]) -> Inventory:
    """The inventory with other versions of its objects, then with single fields changed.

    An object among the others takes the place of the one of its kind, namespace and name; where there is none it
    comes last.
    Errors: InputError with all changes that cannot be made, and all that is wrong with what comes out.
    """
    values: dict[_Key, tuple[dict[str, Any], Place]] = {}
    for entry in inventory.entries:
        key = _key(entry)
        while key in values:  # objects without a name of their own are different ones
            key = key._replace(number=key.number + 1)
        values[key] = (entry.value, entry.place)
    for entry in others:
        values[_key(entry)] = (entry.value, entry.place)
    faults = []
    for change in changes:
        found = [key for key in values if _is_meant(change, key)]
        if not found:
            faults.append(Fault(source="--set", value=change.text, rule="there is no such object"))
        for each in found:
            value, place = values[each]
            edited = copy.deepcopy(value)
            rule = _set(edited, change)
            if rule:
                faults.append(Fault(source="--set", value=change.text, rule=rule))
            values[each] = (edited, place)
    if faults:
        raise InputError(faults)
    return inventory_of(values.values(), inventory.namespace)


def _key(entry: Entry) -> _Key:
    one = entry.manifest
    return _Key(one.kind, one.namespace, one.name)


def _is_meant(change: Change, key: _Key) -> bool:
    kind = key.kind.lower()
    return change.kind in (kind, f"{kind}s") and change.name == key.name


def _set(value: dict[str, Any], change: Change) -> str:
    """Make the change; the rule that it offends against, if it cannot be made."""
    first, _, rest = change.path.partition(".")
    makers: dict[str, Callable[[dict[str, Any], str, str], str]] = {
        "replicas": _set_replicas,
        "hard": _set_hard,
        "containers": _set_container,
        "initContainers": _set_init_container,
    }
    maker = makers.get(first)
    return maker(value, rest, change.value) if maker is not None else _PATHS


def _set_replicas(value: dict[str, Any], rest: str, text: str) -> str:
    template = TEMPLATES.get((value["apiVersion"], value["kind"]))
    if template is None or template.replicas is None:
        return "wants no number of pods"
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


def _set_container(value: dict[str, Any], rest: str, text: str) -> str:
    return _set_amount(value, "containers", rest, text)


def _set_init_container(value: dict[str, Any], rest: str, text: str) -> str:
    return _set_amount(value, "initContainers", rest, text)


def _set_amount(value: dict[str, Any], field: str, rest: str, text: str) -> str:
    name, _, rest = rest.partition(".")
    side, _, resource = rest.partition(".")
    if side not in ("requests", "limits") or not resource:
        return _PATHS
    key = (value["apiVersion"], value["kind"])
    template = TEMPLATES.get(key)
    if template is None and key != POD:
        return "has no containers"
    spec = _inside(value, *(template.path if template is not None else ()), "spec")
    container = next((one for one in spec.get(field) or () if one.get("name") == name), None)
    if container is None:
        return f'has no container "{name}" in {field}'
    _put(_inside(container, "resources", side), resource, text)
    return ""


def _inside(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """The mapping at that path, which is made if it is not there."""
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
