"""Tables of our own: a row a node, a row a pod, in the order of arrival; never held in memory as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from nodewright.core.arrival import arrived, stored
from nodewright.core.requests import with_defaults
from nodewright.core.validation import violations
from nodewright.model.fleet import FleetPod
from nodewright.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
    Taint,
)
from nodewright.model.resource_names import is_extended
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.decode import amount
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.nodes import USUAL_PODS, ReadNode
from nodewright.world.fleet.tables import Row, Table, columns

NODE_COLUMNS = {
    "name": True,
    "cpu": True,
    "memory": True,
    "pods": False,
    "ephemeral-storage": False,
    "labels": False,
    "taints": False,
}
POD_COLUMNS = {
    "name": True,
    "namespace": False,
    "cpu": True,
    "memory": True,
    "ephemeral-storage": False,
    "qos": False,
    "priority": False,
    "arrives": False,
    "runs": False,
    "node_selector": False,
    "controlled": False,
    "labels": False,
}
_NOT_AMOUNTS = frozenset(
    {
        "name",
        "namespace",
        "qos",
        "priority",
        "arrives",
        "runs",
        "node_selector",
        "controlled",
        "labels",
        "taints",
    }
)
_OWN = frozenset({"name", "arrives", "runs", "controlled"})
"""What pods of one kind may differ in."""
_QOS = {"": True, "Guaranteed": True, "Burstable": False}
_MOST_PRIORITY = 2**31 - 1
_YES = {"": False, "no": False, "false": False, "yes": True, "true": True}


def table_nodes(table: Table) -> Iterator[ReadNode]:
    """The nodes of the table.

    Errors: InputError with the place of the first row that is none.
    """
    at = columns(table.header, NODE_COLUMNS, table.path)
    for row in table.rows():
        cell = {name: row.cells[place] for name, place in at.items()}
        source = f"{table.path}:{row.line}"
        amounts = _amounts(cell, source)
        for name in ("name", "cpu", "memory"):
            if not cell[name].strip():
                raise InputError([Fault(source=source, path=name, error="Required value", rule="")])
        amounts.setdefault("pods", Quantity.of(USUAL_PODS))
        yield ReadNode(
            name=cell["name"],
            capacity=amounts,
            allocatable=amounts,
            labels=_pairs(cell.get("labels", ""), source, "labels"),
            taints=_taints(cell.get("taints", ""), source),
            place=source,
        )


def table_pods(table: Table) -> Iterator[FleetPod]:
    """The pods of the table, row by row.

    Errors: InputError at the first row that is none, or that arrives before the one above it.
    """
    read = _Pods(table, columns(table.header, POD_COLUMNS, table.path))
    return map(read.pod, table.rows())


@dataclass(slots=True)
class _Pods:
    table: Table
    at: dict[str, int]
    _now_s: float = 0
    _made: dict[tuple[str, ...], Pod] = field(default_factory=dict)
    _kind: tuple[int, ...] = ()
    _own: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # Resources are columns of their own; what pods of one kind share stands in the others.
        self._kind = tuple(place for name, place in self.at.items() if name not in _OWN)
        self._own = tuple(self.at.get(name, -1) for name in ("name", "arrives", "runs", "controlled"))

    def pod(self, row: Row) -> FleetPod:
        """The pod of the next row."""
        line, cells = row
        name, arrives, runs, controlled = self._own
        source = f"{self.table.path}:{line}"
        if not cells[name]:
            raise InputError([Fault(source=source, path="name", error="Required value", rule="")])
        key = tuple([cells[place] for place in self._kind])
        pod = self._made.get(key)
        if pod is None:
            pod = self._made[key] = self._template(row)
        at_s = (
            self._seconds(cells[arrives], "arrives", source)
            if arrives >= 0 and cells[arrives]
            else self._now_s
        )
        if at_s < self._now_s:
            rule = f"time runs backwards: the row above arrives at {self._now_s:g}"
            raise InputError([Fault(source=source, path="arrives", value=cells[arrives], rule=rule)])
        self._now_s = at_s
        return FleetPod(
            name=cells[name],
            namespace=pod.metadata.namespace,
            pod=pod,
            arrives_s=at_s,
            runs_s=self._seconds(cells[runs], "runs", source) if runs >= 0 and cells[runs] else None,
            controlled=controlled >= 0 and _word(cells[controlled], _YES, "controlled", source),
            place=source,
        )

    def _template(self, row: Row) -> Pod:
        cell = {name: row.cells[place] for name, place in self.at.items()}
        source = f"{self.table.path}:{row.line}"
        amounts = _amounts(cell, source)
        limits = amounts if _word(cell.get("qos", ""), _QOS, "qos", source) else _extended(amounts)
        priority = cell.get("priority") or "0"
        digits = priority.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and abs(int(priority)) <= _MOST_PRIORITY):
            rule = f"a whole number is wanted, at most {_MOST_PRIORITY} to either side of 0"
            raise InputError([Fault(source=source, path="priority", value=priority, rule=rule)])
        container = Container(
            name="main", image="main", resources=ResourceRequirements(requests=amounts, limits=limits)
        )
        meta = ObjectMeta(
            name=cell["name"],
            namespace=cell.get("namespace") or "default",
            labels=_pairs(cell.get("labels", ""), source, "labels"),
        )
        spec = PodSpec(
            containers=(container,),
            priority=int(priority) or None,
            node_selector=_pairs(cell.get("node_selector", ""), source, "node_selector"),
        )
        pod = Pod(metadata=meta, spec=spec)
        wrong = [
            Fault(
                source=source,
                path=one.path,
                value=None if one.value is None else str(one.value),
                error=str(one.type),
                rule=one.rule,
            )
            for one in violations(pod)
        ]
        if wrong:
            raise InputError(wrong)
        return with_defaults(stored(msgspec.structs.replace(arrived(pod).pod)))

    def _seconds(self, text: str, column: str, source: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if 0 <= found < float("inf"):
            return found
        raise InputError(
            [Fault(source=source, path=column, value=text, rule="seconds are wanted, 0 or more")]
        )


def _amounts(cell: dict[str, str], source: str) -> ResourceList:
    found: ResourceList = {}
    for name, text in cell.items():
        if name in _NOT_AMOUNTS or not text.strip():
            continue
        try:
            found[name] = amount(text)
        except QuantityError as error:
            raise InputError([Fault(source=source, path=name, value=text, rule=str(error))]) from None
        if found[name].sign() < 0:
            raise InputError([Fault(source=source, path=name, value=text, rule="must not be less than 0")])
    return {name: one for name, one in found.items() if one.sign() or not is_extended(name)}


def _extended(amounts: ResourceList) -> ResourceList:
    """The amounts that have to have limits, since they cannot be shared."""
    return {name: one for name, one in amounts.items() if is_extended(name) or name.startswith("hugepages-")}


def _pairs(text: str, source: str, column: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        key, is_pair, value = part.partition("=")
        if not is_pair:
            rule = "key=value is wanted, several divided by semicolons"
            raise InputError([Fault(source=source, path=column, value=part, rule=rule)])
        found[key] = value
    return found


def _taints(text: str, source: str) -> tuple[Taint, ...]:
    found = []
    for part in filter(None, (one.strip() for one in text.split(";"))):
        rest, is_taint, effect = part.rpartition(":")
        if not is_taint or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            rule = "key=value:NoSchedule (or PreferNoSchedule, NoExecute) is wanted"
            raise InputError([Fault(source=source, path="taints", value=part, rule=rule)])
        key, _, value = rest.partition("=")
        found.append(Taint(key=key, value=value, effect=effect))
    return tuple(found)


def _word(text: str, words: dict[str, bool], column: str, source: str) -> bool:
    found = words.get(text)
    if found is None:
        rule = f"one of {', '.join(filter(None, words))} is wanted, or nothing"
        raise InputError([Fault(source=source, path=column, value=text, rule=rule)])
    return found
