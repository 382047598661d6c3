from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.documents.profiles.kubelet_config_files import LoadedConfig, kubelet_config_from
from nodewright.engine.core.allocatable import node_resources
from nodewright.engine.core.config.complete_config import complete_config, defaulted
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import HugePages, MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, Signal, parse_thresholds
from nodewright.model.kubernetes.kubelet_config_faults import ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FEATURE_GATES, resolve_gates
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import float_text
from nodewright.model.values.quantity import Quantity

FIELDS = [field.encode_name for field in msgspec.structs.fields(KubeletConfiguration)]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
texts = st.sampled_from(["1", "5%", "0%", "100Mi", "-1", "1e30", "10m", "x", "", "0-3", "nan%", "5 %"])
names = st.sampled_from(
    [*(signal.value for signal in Signal), "cpu", "memory", "pid", "numaNode", "limits", "x"]
)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)
spans = st.integers(-(2**63), 2**63 - 1).map(Duration)


@given(documents)
@example({"maxPods": 10**30})
@example({"reservedSystemCPUs": "0-9999999999"})
def test_any_document_gives_a_configuration_or_faults(document: dict[str, Any]) -> None:
    faults: tuple[Fault, ...] = ()
    loaded: LoadedConfig | None = None
    try:
        loaded = kubelet_config_from(document, "document")
    except InputError as error:
        faults = error.faults
    assert (loaded is None) == bool(faults)
    assert all(fault.path and fault.rule for fault in faults)
    if loaded is not None:
        assert complete_config(loaded.config).faults == ()
        assert complete_config(loaded.config).config == loaded.config


@given(
    st.builds(
        KubeletConfiguration,
        max_pods=st.integers(-2, 200),
        pod_pids_limit=st.integers(-5, 5),
        merge_default_eviction_settings=st.booleans(),
        eviction_hard=st.dictionaries(names, texts, max_size=3),
        node_status_update_frequency=spans,
        node_status_report_frequency=spans,
        max_parallel_image_pulls=st.none() | st.integers(0, 5),
        topology_manager_policy=st.sampled_from(["", "none", "x"]),
        image_minimum_gc_age=spans,
    )
)
def test_defaulting_twice_is_defaulting_once(config: KubeletConfiguration) -> None:
    once = defaulted(config, DEFAULT_GATES)
    assert defaulted(once, DEFAULT_GATES) == once


@given(st.dictionaries(st.sampled_from(sorted(FEATURE_GATES)), st.booleans(), max_size=8))
def test_gates_are_what_was_asked_or_the_defaults_with_a_reason(asked: dict[str, bool]) -> None:
    resolved_gates = resolve_gates(asked)
    if resolved_gates.errors:
        assert resolved_gates.gates == DEFAULT_GATES
    else:
        assert all(resolved_gates.gates[name] == value for name, value in asked.items())
        assert all(
            resolved_gates.gates[need]
            for gate in FEATURE_GATES.values()
            if resolved_gates.gates[gate.name]
            for need in gate.dependencies
        )


amounts = st.integers(0, 2**40)
machines = st.builds(
    MachineInfo,
    num_cores=st.integers(1, 256),
    memory_capacity=amounts,
    hugepages=st.lists(
        st.builds(HugePages, page_size=st.sampled_from([2048, 1048576]), num_pages=st.integers(0, 500))
    ).map(tuple),
)
reservations = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "pid"]), amounts.map(str)
)
percentages = st.integers(1, 99).map("{}%".format)


@given(machines, amounts, reservations, reservations, percentages)
def test_allocatable_is_between_nothing_and_the_capacity(
    machine: MachineInfo, disk: int, kube: dict[str, str], system: dict[str, str], percentage: str
) -> None:
    config = KubeletConfiguration(
        kube_reserved=kube,
        system_reserved=system,
        eviction_hard={"memory.available": percentage, "nodefs.available": percentage},
    )
    result = node_resources(machine, disk, config)
    assert result.allocatable.keys() == result.capacity.keys()
    for row in result.derivations:
        assert Quantity.of(0) <= row.allocatable <= row.capacity
        taken = row.kube_reserved + row.system_reserved + row.eviction_hard + row.huge_pages
        assert row.is_over_reserved == (row.capacity < taken)
        if not row.is_over_reserved:
            assert row.allocatable + taken == row.capacity
    assert {over_reserved.resource for over_reserved in result.over_reserved} <= {
        row.resource for row in result.derivations if row.is_over_reserved
    }


@given(st.integers(1, 99_999))
def test_a_percentage_is_read_back_from_what_it_prints(thousandths: int) -> None:
    text = f"{float_text(thousandths / 1000)}%"
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": text})).thresholds
    assert threshold.value.text == text
    assert abs(threshold.value.fraction * 100_000 - thousandths) <= thousandths * 2**-22


@given(spans)
def test_a_duration_is_read_back_from_what_it_prints(span: Duration) -> None:
    assert Duration.parse(str(span)) == span


@given(st.text(alphabet="0123456789.+-hmsuµn x", max_size=25))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    said, span = "time: ", Duration()
    try:
        span = Duration.parse(text)
    except DurationError as error:
        said = str(error)
    assert said.startswith("time: ")
    assert Duration.parse(str(span)) == span


@given(st.dictionaries(names, texts), st.dictionaries(names, texts), st.dictionaries(names, texts))
def test_thresholds_are_parsed_or_rejected(
    hard: dict[str, str], soft: dict[str, str], periods: dict[str, str]
) -> None:
    parsed_thresholds = parse_thresholds(EvictionSettings(hard=hard, soft=soft, soft_grace_period=periods))
    assert all(fault.stage is ConfigStage.STARTUP for fault in parsed_thresholds.faults)
    wrong = {fault.path for fault in parsed_thresholds.faults}
    off = {"0%", "100%"}
    for signal, text in hard.items():
        is_read = any(
            threshold.signal == signal and threshold.value.text == text
            for threshold in parsed_thresholds.thresholds
        )
        assert is_read or text in off or f"evictionHard[{signal}]" in wrong
