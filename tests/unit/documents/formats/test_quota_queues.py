"""Kueue's queues: what their quota allows and no node takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.documents.formats.quota_queues import queue_quotas, read_queue_object
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.model.errors import InputError
from nodewright.predict.fit.queued import queue_fits
from nodewright.predict.node import Node

QUEUE = "examples/other-systems/queue.yaml"
CLUSTER = ["--nodes", "examples/fit/cluster.yaml", "--kubelet-config", "examples/fit/single-numa-node.yaml"]


def queue(*groups: dict[str, dict[str, str]]) -> Any:
    listed = [
        {
            "coveredResources": [*next(iter(group.values()))],
            "flavors": [
                {
                    "name": name,
                    "resources": [{"name": key, "nominalQuota": text} for key, text in amounts.items()],
                }
                for name, amounts in group.items()
            ],
        }
        for group in groups
    ]
    return read_queue_object(
        {"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {"resourceGroups": listed}}
    )


def flavor(name: str, **labels: str) -> Any:
    return read_queue_object(
        {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}}
    )


def test_a_pod_gets_a_flavor_of_each_group_of_resources() -> None:
    read = queue({"a": {"cpu": "1500m"}, "b": {"cpu": "2"}}, {"g": {"gpu": "4"}})
    read_all = queue_quotas([read, flavor("a", zone="x"), flavor("b"), flavor("g", gpu="yes")])
    assert [quota.flavors for quota in read_all.quotas] == [("a", "g"), ("b", "g")]
    assert (dict(read_all.quotas[0].amounts), {*read_all.quotas[0].node_labels}, [*read_all.unjudged]) == (
        {"cpu": 1500, "gpu": 4},
        {("zone", "x"), ("gpu", "yes")},
        [],
    )


def test_flavors_that_are_not_given_are_named_and_not_judged() -> None:
    read = queue({"a": {"cpu": "1"}, "b": {"cpu": "2"}}, {"g": {"gpu": "4"}})
    some = queue_quotas([read, flavor("g"), flavor("b")])
    assert [quota.flavors for quota in some.quotas] == [("b", "g")]
    assert some.unjudged == ("ClusterQueue q: not judged: no ResourceFlavor a is given",)


def test_no_node_has_two_values_of_a_label() -> None:
    read = queue({"a": {"cpu": "1"}}, {"g": {"gpu": "4"}})
    (quota,) = queue_quotas([read, flavor("a", zone="x"), flavor("g", zone="y")]).quotas
    node = Node.open("vm-4")
    (fit,) = [each for each in queue_fits([quota], [node], [], {}) if each.resource == "cpu"]
    assert (fit.nodes, fit.never_used) == (0, 1000)


def test_combinations_beyond_those_that_are_judged_are_named() -> None:
    names = [f"f{number}" for number in range(9)]
    read = queue(*({name: {f"r{group}": "1"} for name in names} for group in range(2)))
    many = queue_quotas([read, *map(flavor, names)])
    assert len(many.quotas) == 64
    assert many.unjudged == ("ClusterQueue q: 81 combinations of flavors; not judged: those after 64",)


def test_quota_without_nodes_is_never_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *CLUSTER, "-f", QUEUE, "-o", "json"]) == YES
    rows = json.loads(capsys.readouterr().out)["queues"]
    assert [
        (row["flavors"], row["resource"], row["byQuota"], row["onNodes"], row["onOneNode"]) for row in rows
    ] == [
        (["h100"], "cpu", 768_000, 760_000, 190_000),
        (["h100"], "memory", 8 << 40, 8 << 40, 2 << 40),
        (["h100"], "nvidia.com/gpu", 32, 32, 8),
        (["h200"], "cpu", 192_000, 0, 0),
        (["h200"], "memory", 2 << 40, 0, 0),
        (["h200"], "nvidia.com/gpu", 8, 0, 0),
    ]


def test_pods_are_counted_by_quota_and_by_what_nodes_admit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *CLUSTER, "-f", QUEUE, "-f", "examples/fit/four-gpus.yaml"]) == YES
    output = capsys.readouterr()
    lines = [line.split() for line in output.out.splitlines() if line.startswith("research")]
    assert lines == [
        ["research", "h100", "4", "ci/test-h100-4", "8", "8", "2", "0"],
        ["research", "h200", "0", "ci/test-h100-4", "2", "0", "0", "2"],
    ]
    assert "skipped" not in output.err


def test_a_pod_that_requests_what_the_queue_does_not_cover_gets_no_quota(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: disk}\nspec:\n"
        "  containers: [{name: a, image: a, resources: {requests: {ephemeral-storage: 1Gi}}}]\n",
        encoding="utf-8",
    )
    assert run(["fit", *CLUSTER, "-f", QUEUE, "-f", str(path), "-o", "json"]) == YES
    rows = json.loads(capsys.readouterr().out)["queues"]
    assert [(row["resource"], row["byQuota"]) for row in rows] == [("", 0), ("", 0)]


def test_other_kinds_are_not_read_and_wrong_types_are_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_queue_object({"kind": "LocalQueue"}) is None
    with pytest.raises(InputError):
        read_queue_object({"kind": "ClusterQueue", "spec": {"resourceGroups": 3}})
    path = tmp_path / "queue.yaml"
    text = Path(QUEUE).read_text(encoding="utf-8").replace('"768"', "many")
    path.write_text(text, encoding="utf-8")
    assert run(["fit", *CLUSTER, "-f", str(path)]) == ERROR
    assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota" in capsys.readouterr().err
    assert run(["admit", "--node", "p5.48xlarge", "-f", QUEUE]) in (ERROR, NO)
