"""The tables of Alibaba's cluster-trace-gpu-v2023 ("openb"): nodes, and pods with their times.

CPU is in thousandths, memory in MiB; `gpu_milli` is per GPU, `gpu_spec` lists the allowed models, separated by `|`;
times are in seconds. Source: the README of the trace (github.com/alibaba/clusterdata).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodewright.engine.admission.admission_plugins import defaulted_pod
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.fleet.load.assembled_nodes import DEFAULT_MAX_PODS, NodeEntry
from nodewright.fleet.load.csv_tables import Row, Table
from nodewright.fleet.load.gpu_annotations import WHOLE_MILLI, gpu_requests, with_added_requests
from nodewright.fleet.workload import FleetPod, seconds_in
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import kubelet_labels
from nodewright.model.kubernetes.objects import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from nodewright.model.values.golang import is_number_of_digits, saturated_int
from nodewright.model.values.quantity import Quantity, QuantityFormat

GPU, GPU_MILLI = "nvidia.com/gpu", "nodewright.dev/gpu-milli"
MODEL_LABEL = "alibabacloud.com/gpu-card-model"
NODE_COLUMNS = frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"})
POD_COLUMNS = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"})
_NO_LIMITS = frozenset({"BE", "Burstable", "BestEffort"})
_TIMES = ("creation_time", "deletion_time", "scheduled_time")
_MIB = 1 << 20
_MODEL_SEPARATOR = "|"


def openb_nodes(table: Table) -> Iterator[NodeEntry]:
    """The nodes of the table; all of their capacity is allocatable, with the kubelet's default number of pods.

    Errors: InputError for rows without numbers.
    """
    at = {name: index for index, name in enumerate(table.header)}

    def node(row: Row) -> NodeEntry:
        cpu, memory, gpus = (
            _number(row, at, name, table.path) for name in ("cpu_milli", "memory_mib", "gpu")
        )
        model = row.cells[at["model"]]
        amounts = {
            "cpu": Quantity.of_milli(cpu),
            "memory": Quantity.of(memory * _MIB, QuantityFormat.BINARY_SI),
            "pods": Quantity.of(DEFAULT_MAX_PODS),
        }
        if gpus:
            amounts |= {GPU: Quantity.of(gpus), GPU_MILLI: Quantity.of(gpus * WHOLE_MILLI)}
        source = f"{table.path}:{row.line}"
        if not cpu or not memory:
            raise InputError([Fault(source=source, rule="a node without CPUs or memory cannot hold pods")])
        name = row.cells[at["sn"]]
        labels = kubelet_labels(name) | ({MODEL_LABEL: model} if model else {})
        return NodeEntry(name=name, capacity=amounts, allocatable=amounts, labels=labels, source=source)

    return table.read(node)


def openb_pods(table: Table) -> list[FleetPod]:
    """The pods of the table in the order of arrival, those with equal times in the order of the table.

    A pod runs from its scheduling in the trace, or otherwise its creation, to its deletion. The classes BE,
    Burstable and BestEffort request without limits; all others have limits equal to their requests.

    Errors: InputError with the rows without numbers, and those with times in descending order.
    """
    return sorted(table.read(_OpenbPodReader(table).pod), key=lambda pod: pod.arrives_s)


@dataclass(slots=True)
class _OpenbPodReader:
    table: Table
    at: dict[str, int] = field(init=False)
    _pods_by_key: dict[tuple[str, ...], tuple[Pod, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = {name: index for index, name in enumerate(self.table.header)}

    def pod(self, row: Row) -> FleetPod:
        cell = {name: row.cells[index] for name, index in self.at.items()}
        key = tuple(
            cell.get(name, "")
            for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
        )
        if key not in self._pods_by_key:
            self._pods_by_key[key] = self._template(row, cell)
        pod, share = self._pods_by_key[key]
        created, deleted, scheduled = (self._time(row, name) for name in _TIMES)
        start_s = created if scheduled is None else scheduled
        source = f"{self.table.path}:{row.line}"
        for name, first, then in (
            ("scheduled_time", created, scheduled),
            ("deletion_time", start_s, deleted),
        ):
            if first is not None and then is not None and then < first:
                rule = f"must not be before {first:g}, is {then:g}"
                raise InputError([Fault(source=source, path=name, rule=rule)])
        return FleetPod(
            name=cell["name"],
            pod=pod,
            arrives_s=created or 0,
            runs_s=None if deleted is None else deleted - (start_s or 0),
            gpu_milli=share,
            source=source,
        )

    def _template(self, row: Row, cell: dict[str, str]) -> tuple[Pod, int]:
        cpu, memory, gpus, milli = (
            _number(row, self.at, name, self.table.path)
            for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
        )
        requests = {
            "cpu": Quantity.of_milli(cpu),
            "memory": Quantity.of(memory * _MIB, QuantityFormat.BINARY_SI),
        }
        has_limits = cell.get("qos", "") not in _NO_LIMITS
        resources = ResourceRequirements(requests=requests, limits=requests if has_limits else {})
        container = Container(name="main", image="main", resources=resources)
        models = [model for model in cell.get("gpu_spec", "").split(_MODEL_SEPARATOR) if model]
        spec = PodSpec(containers=(container,), affinity=_on_models(models) if models else None)
        pod = Pod(metadata=ObjectMeta(name=cell["name"], namespace="default"), spec=spec)
        amounts, share = gpu_requests(GPU, GPU_MILLI, gpus, milli)
        return with_defaults(defaulted_pod(with_added_requests(pod, amounts) if amounts else pod).pod), share

    def _time(self, row: Row, name: str) -> float | None:
        index = self.at.get(name)
        text = "" if index is None else row.cells[index]
        return seconds_in(text, name, f"{self.table.path}:{row.line}") if text else None


def _on_models(models: list[str]) -> Affinity:
    requirement = NodeSelectorRequirement(key=MODEL_LABEL, operator="In", values=tuple(models))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement,)),))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def _number(row: Row, at: dict[str, int], name: str, source: str) -> int:
    text = row.cells[at[name]]
    if is_number_of_digits(text):
        return saturated_int(text)
    raise InputError(
        [Fault(source=f"{source}:{row.line}", path=name, value=text, rule="must be a whole number")]
    )
