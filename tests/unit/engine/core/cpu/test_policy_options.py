import pytest

from nodewright.engine.core.cpu.policy_options import CPUGates, read_options, unsuitable_option
from nodewright.model.reasons.cpu import (
    AlignBySocketAgainstMachine,
    AlignBySocketAgainstPolicy,
    CPUOptionGated,
    CPUOptionsExclusive,
    CPUOptionUnknown,
    CPUOptionValueInvalid,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.feature_gates import DEFAULT_GATES, resolve_gates
from nodewright.model.releases.release_rules import POLICY_OPTIONS, CPUOptions
from nodewright.testing.strategies import topology

EVERYTHING = CPUGates(alpha_options=True)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_a_text_that_go_parses_as_true_turns_an_option_on(text: str) -> None:
    assert read_options({"full-pcpus-only": text}, CPUGates()) == Granted(CPUOptions(full_pcpus_only=True))


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_a_text_that_go_parses_as_false_leaves_an_option_off(text: str) -> None:
    assert read_options({"full-pcpus-only": text}, CPUGates()) == Granted(CPUOptions())


@pytest.mark.parametrize("text", ["", "yes", "tRUE", " true", "2"])
def test_any_other_text_is_an_invalid_value(text: str) -> None:
    fault = CPUOptionValueInvalid(option="full-pcpus-only", value=text)
    assert read_options({"full-pcpus-only": text}, CPUGates()) == Refused((fault,))


@pytest.mark.parametrize(
    ("option", "stage"),
    [
        ("align-by-socket", "Alpha"),
        ("distribute-cpus-across-cores", "Alpha"),
        ("distribute-cpus-across-numa", "Beta"),
    ],
)
def test_an_option_needs_the_gate_of_its_stage(option: str, stage: str) -> None:
    closed = CPUGates(alpha_options=False, beta_options=False)
    opened = CPUGates(alpha_options=stage == "Alpha", beta_options=stage == "Beta")
    # The gate counts even for an option that is off.
    assert read_options({option: "false"}, closed) == Refused((CPUOptionGated(option=option, stage=stage),))
    assert isinstance(read_options({option: "true"}, opened), Granted)


@pytest.mark.parametrize(
    "option", ["full-pcpus-only", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache"]
)
def test_a_stable_option_needs_no_gate(option: str) -> None:
    assert isinstance(read_options({option: "true"}, CPUGates(beta_options=False)), Granted)


@pytest.mark.parametrize("option", POLICY_OPTIONS)
def test_every_option_of_the_table_is_read(option: str) -> None:
    verdict = read_options({option: "true"}, EVERYTHING)
    assert isinstance(verdict, Granted)
    assert verdict.value.by_name() == {name: name == option for name in POLICY_OPTIONS}


def test_an_unknown_option_is_named() -> None:
    assert read_options({"no-such": "true"}, EVERYTHING) == Refused((CPUOptionUnknown(option="no-such"),))


def test_of_several_faults_the_first_by_name_is_reported() -> None:
    verdict = read_options({"zzz": "true", "full-pcpus-only": "x", "strict-cpu-reservation": "y"}, EVERYTHING)
    assert verdict == Refused((CPUOptionValueInvalid(option="full-pcpus-only", value="x"),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    ],
)
def test_some_options_exclude_each_other(one: str, other: str) -> None:
    both = read_options({one: "true", other: "true"}, EVERYTHING)
    assert both == Refused((CPUOptionsExclusive(one=one, other=other),))
    assert isinstance(read_options({one: "true", other: "false"}, EVERYTHING), Granted)


def test_align_by_socket_needs_another_topology_policy_than_single_numa_node() -> None:
    options, machine = CPUOptions(align_by_socket=True), topology()
    assert unsuitable_option(options, machine, "single-numa-node") == AlignBySocketAgainstPolicy(
        policy="single-numa-node"
    )
    assert unsuitable_option(options, machine, "restricted") is None
    assert unsuitable_option(CPUOptions(), machine, "single-numa-node") is None


def test_align_by_socket_needs_a_numa_node_for_each_socket() -> None:
    one_node = topology(sockets=2)
    joined = type(one_node)(16, 8, 2, 1, 2, tuple(place._replace(numa=0) for place in one_node.cpu_info))
    fault = AlignBySocketAgainstMachine(sockets=2, numa_nodes=1)
    assert unsuitable_option(CPUOptions(align_by_socket=True), joined, "none") == fault


def test_the_gates_are_those_of_the_release_by_default() -> None:
    assert CPUGates.of(DEFAULT_GATES) == CPUGates()
    assert CPUGates.of(resolve_gates({"PodLevelResourceManagers": True}).gates) == CPUGates(
        pod_level_managers=True
    )
