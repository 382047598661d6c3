import gzip
from itertools import islice
from pathlib import Path

import pytest

from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.model.errors import InputError

OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,96000,393216,8,V100M32\n"
OPENB_PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,40,100,50
p1,6000,12288,1,460,V100M16|V100M32,BE,10,30,
p2,12000,16384,1,1000,,LS,10,,
"""
NODES = "name,cpu,memory,labels,taints\nn1,8,32Gi,zone=a;disk=ssd,only=ml:NoSchedule\nn2,8,32Gi,zone=b,\n"
PODS = """\
name,cpu,memory,qos,arrives,runs,node_selector,controlled,priority
a,2,1Gi,,0,60,,,
b,500m,1Gi,Burstable,5,,zone=b,yes,7

c,2,1Gi,,5,60,,,
"""


def fleet(tmp_path: Path, nodes: str, pods: str) -> FleetInput:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(pods.encode()))
    return load_fleet(FleetFiles(nodes=(str(tmp_path / "nodes.csv"),), pods=(str(tmp_path / "pods.csv.gz"),)))


def test_an_openb_trace_is_read_with_its_times_devices_and_models(tmp_path: Path) -> None:
    fleet_input = fleet(tmp_path, OPENB_NODES, OPENB_PODS)
    assert [node.shape for node in fleet_input.nodes] == [
        "1x1x16x2 256Gi",
        "2x1x24x2 384Gi, 8 nvidia.com/gpu",
    ]
    pods = list(fleet_input.pods())
    assert [(pod.name, pod.arrives_s, pod.runs_s, pod.gpu_milli) for pod in pods] == [
        ("p1", 10, 20, 460),
        ("p2", 10, None, 0),
        ("p0", 40, 50, 0),
    ]
    shared, whole, same = pods
    assert whole.pod is same.pod
    main = whole.pod.spec.containers[0].resources
    assert main.limits == main.requests
    assert str(main.requests["nvidia.com/gpu"]) == "1"
    affinity = shared.pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    assert required.node_selector_terms[0].match_expressions[0].values == ("V100M16", "V100M32")
    assert "cpu" not in shared.pod.spec.containers[0].resources.limits


def test_our_own_tables_are_read_row_by_row(tmp_path: Path) -> None:
    fleet_input = fleet(tmp_path, NODES, PODS)
    first, second = fleet_input.nodes
    assert (first.labels["disk"], first.taints[0].effect, second.taints) == ("ssd", "NoSchedule", ())
    pods = list(fleet_input.pods())
    assert [(pod.name, pod.arrives_s, pod.runs_s, pod.has_controller) for pod in pods] == [
        ("a", 0, 60, False),
        ("b", 5, None, True),
        ("c", 5, 60, False),
    ]
    assert pods[0].pod is pods[2].pod
    assert pods[1].pod.spec.node_selector == {"zone": "b"}
    assert pods[1].pod.spec.priority == 7
    assert pods[2].source.endswith("pods.csv.gz:5")


def test_rows_are_read_lazily(tmp_path: Path) -> None:
    fleet_input = fleet(tmp_path, NODES, PODS + "broken\n")
    assert [pod.name for pod in islice(fleet_input.pods(), 3)] == ["a", "b", "c"]
    with pytest.raises(InputError, match=r"pods.csv.gz:6: must have 9 columns, has 1"):
        list(fleet_input.pods())


FAULTS = [
    (
        NODES,
        PODS.replace("c,2,1Gi,,5", "c,2,1Gi,,4"),
        r"pods.csv.gz:5: arrives: .*: must not be before the previous row, 5",
    ),
    (
        NODES,
        PODS.replace(",60,,,\n\n", ",-1,,,\n\n").replace("a,2,1Gi,,0,60", "a,2,1Gi,,0,-1"),
        r":2: runs: .*0 or more",
    ),
    (
        NODES,
        PODS.replace("500m", "1GB2"),
        r"pods.csv.gz:3: cpu: Invalid value: \"1GB2\": quantities must match",
    ),
    (
        NODES,
        PODS.replace("Burstable", "Best"),
        r":3: qos: .*must be one of Guaranteed, Burstable, or empty; a pod without amounts of cpu and memory is BestEffort",
    ),
    (NODES, PODS.replace("500m", "1" + "0" * 18), r"pods.csv.gz:3: cpu: .*must be at most 9223372036854775"),
    (NODES.replace("n1,8,", f"n1,{2**63},"), PODS, r"nodes.csv:2: cpu: .*must be at most 9223372036854775"),
    (NODES, PODS.replace("zone=b", "zone"), r":3: node_selector: .*must be key=value"),
    (NODES, PODS.replace(",yes,7", ",yes,high"), r":3: priority: .*must be a whole number"),
    (NODES, PODS.replace(",yes,7", ",yes," + "9" * 5000), r":3: priority: .*must be a whole number"),
    (
        NODES,
        PODS.replace("controlled", "controled"),
        r":1: the column \"controled\" is unknown; known are name",
    ),
    (
        NODES,
        PODS.replace("name,cpu", "cpu,cpu"),
        r":1: the column \"name\" is missing\n.*\"cpu\" is given twice",
    ),
    (NODES, PODS.replace("a,2", ",2"), r"pods.csv.gz:2: name: Required value"),
    (NODES, "", r"pods.csv.gz:1: must be a line with the names of the columns"),
    (
        OPENB_NODES,
        OPENB_PODS.replace("40,100,50", "40,45,50"),
        r":2: deletion_time: must not be before 50, is 45",
    ),
    (
        OPENB_NODES,
        OPENB_PODS.replace("10,30,", "soon,30,"),
        r":3: creation_time: .*\"soon\": must be seconds",
    ),
    (OPENB_NODES, OPENB_PODS.replace("p1,6000", "p1,six"), r":3: cpu_milli: .*must be a whole number"),
    (OPENB_NODES.replace("32000", "0"), OPENB_PODS, r"nodes.csv:2: a node without CPUs or memory"),
    (NODES.replace("n1,8,", "n1,,"), PODS, r"nodes.csv:2: cpu: Required value"),
    (NODES.replace("only=ml:NoSchedule", "only=ml"), PODS, r"nodes.csv:2: taints: .*:NoSchedule"),
]


@pytest.mark.parametrize(("nodes", "pods", "rule"), FAULTS)
def test_a_fault_in_a_row_is_reported_with_its_line(tmp_path: Path, nodes: str, pods: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        list(fleet(tmp_path, nodes, pods).pods())


def test_a_number_of_any_length_is_read(tmp_path: Path) -> None:
    first, *_ = fleet(tmp_path, OPENB_NODES, OPENB_PODS.replace("p1,6000", "p1," + "9" * 5000)).pods()
    assert first.pod.spec.containers[0].resources.requests["cpu"].value() == 10**17


@pytest.mark.parametrize("content", [b"\x1f\x8bno gzip", b"name,cpu\xff", gzip.compress(PODS.encode())[:-12]])
def test_an_unreadable_table_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"pods.csv:\d+: "):
        list(
            load_fleet(
                FleetFiles(nodes=(str(tmp_path / "nodes.csv"),), pods=(str(tmp_path / "pods.csv"),))
            ).pods()
        )
