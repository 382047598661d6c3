"""The tables of Alibaba's cluster-trace-gpu-v2023 ("openb"): nodes, and pods with their times.

CPU is in thousandths, memory in MiB; `gpu_milli` is of each GPU, `gpu_spec` names the models that suit, divided
by `|`; times are in seconds. The trace's own README says so (github.com/alibaba/clusterdata).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodewright.core.arrival import arrived
from nodewright.core.requests import with_defaults
from nodewright.model.fleet import FleetPod
from nodewright.model.objects import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
)
from nodewright.values.quantity import Format, Quantity
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.gpus import WHOLE_MILLI, gpu_amounts, with_resources
from nodewright.world.fleet.nodes import USUAL_PODS, ReadNode
from nodewright.world.fleet.tables import Row, Table

GPU, GPU_MILLI = "nvidia.com/gpu", "nodewright.dev/gpu-milli"
MODEL_LABEL = "alibabacloud.com/gpu-card-model"
NODE_COLUMNS = frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"})
POD_COLUMNS = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"})
_NO_LIMITS = frozenset({"BE", "Burstable", "BestEffort"})
_TIMES = ("creation_time", "deletion_time", "scheduled_time")
_MIB = 1 << 20
_MODEL_SEPARATOR = "|"


def openb_nodes(table: Table) -> Iterator[ReadNode]:
    """The nodes of the table; what they have is all for pods, of which they take as many as a kubelet usually does.

    Errors: InputError for rows without numbers.
    """
    at = {name: place for place, name in enumerate(table.header)}
    for row in table.rows():
        cpu, memory, gpus = (
            _number(row, at, name, table.path) for name in ("cpu_milli", "memory_mib", "gpu")
        )
        model = row.cells[at["model"]]
        amounts = {
            "cpu": Quantity.of_milli(cpu),
            "memory": Quantity.of(memory * _MIB, Format.BINARY_SI),
            "pods": Quantity.of(USUAL_PODS),
        }
        if gpus:
            amounts |= {GPU: Quantity.of(gpus), GPU_MILLI: Quantity.of(gpus * WHOLE_MILLI)}
        source = f"{table.path}:{row.line}"
        if not cpu or not memory:
            raise InputError([Fault(source=source, rule="a node without CPUs or memory cannot hold pods")])
        labels = {MODEL_LABEL: model} if model else {}
        yield ReadNode(
            name=row.cells[at["sn"]], capacity=amounts, allocatable=amounts, labels=labels, place=source
        )


def openb_pods(table: Table) -> list[FleetPod]:
    """The pods of the table in the order of their arrival, those at one time in the table's.

    A pod runs from when the trace's scheduler placed it, or else was made, to its deletion. The classes BE,
    Burstable and BestEffort request without limits; all others have limits equal to their requests.

    Errors: InputError with the rows without numbers, and those whose times run backwards.
    """
    made = _Pods(table)
    pods = [pod for row in table.rows() if (pod := made.pod(row)) is not None]
    if made.faults:
        raise InputError(made.faults)
    return sorted(pods, key=lambda pod: pod.arrives_s)


@dataclass(slots=True)
class _Pods:
    table: Table
    faults: list[Fault] = field(default_factory=list)
    at: dict[str, int] = field(init=False)
    _made: dict[tuple[str, ...], tuple[Pod, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = {name: place for place, name in enumerate(self.table.header)}

    def pod(self, row: Row) -> FleetPod | None:
        try:
            return self._pod(row)
        except InputError as error:
            self.faults.extend(error.faults)
            return None

    def _pod(self, row: Row) -> FleetPod:
        cell = {name: row.cells[place] for name, place in self.at.items()}
        key = tuple(
            cell.get(name, "")
            for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
        )
        if key not in self._made:
            self._made[key] = self._template(row, cell)
        pod, share = self._made[key]
        created, deleted, scheduled = (self._time(row, name) for name in _TIMES)
        begun = created if scheduled is None else scheduled
        source = f"{self.table.path}:{row.line}"
        for name, first, then in (("scheduled_time", created, scheduled), ("deletion_time", begun, deleted)):
            if first is not None and then is not None and then < first:
                rule = f"time runs backwards: {then:g} comes after {first:g}"
                raise InputError([Fault(source=source, path=name, rule=rule)])
        return FleetPod(
            name=cell["name"],
            pod=pod,
            arrives_s=created or 0,
            runs_s=None if deleted is None else deleted - (begun or 0),
            gpu_milli=share,
            place=source,
        )

    def _template(self, row: Row, cell: dict[str, str]) -> tuple[Pod, int]:
        cpu, memory, gpus, milli = (
            _number(row, self.at, name, self.table.path)
            for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
        )
        asked = {"cpu": Quantity.of_milli(cpu), "memory": Quantity.of(memory * _MIB, Format.BINARY_SI)}
        has_limits = cell.get("qos", "") not in _NO_LIMITS
        resources = ResourceRequirements(requests=asked, limits=asked if has_limits else {})
        container = Container(name="main", image="main", resources=resources)
        models = [one for one in cell.get("gpu_spec", "").split(_MODEL_SEPARATOR) if one]
        spec = PodSpec(containers=(container,), affinity=_on_models(models) if models else None)
        pod = Pod(metadata=ObjectMeta(name=cell["name"], namespace="default"), spec=spec)
        amounts, share = gpu_amounts(GPU, GPU_MILLI, gpus, milli)
        return with_defaults(arrived(with_resources(pod, amounts) if amounts else pod).pod), share

    def _time(self, row: Row, name: str) -> float | None:
        place = self.at.get(name)
        text = "" if place is None else row.cells[place]
        if not text:
            return None
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            source = f"{self.table.path}:{row.line}"
            raise InputError([Fault(source=source, path=name, value=text, rule="seconds are wanted")])
        return found


def _on_models(models: list[str]) -> Affinity:
    wanted = SelectorRequirement(key=MODEL_LABEL, operator="In", values=tuple(models))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def _number(row: Row, at: dict[str, int], name: str, source: str) -> int:
    text = row.cells[at[name]]
    if text.isascii() and text.isdigit():
        return int(text)
    raise InputError(
        [Fault(source=f"{source}:{row.line}", path=name, value=text, rule="a whole number is wanted")]
    )
