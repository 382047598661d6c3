"""Readings of usage in files."""

from pathlib import Path

import pytest

from nodewright.model.usage import Usage
from nodewright.model.usage_table import UsageTable
from nodewright.values.quantity import Quantity
from nodewright.world.errors import InputError
from nodewright.world.files import File
from nodewright.world.summary import Reading, load_usage, usage_from

HEAD = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\n"


def read(text: str, name: str = "usage.yaml") -> Reading:
    return usage_from(File(name, text.encode()))


def faults(text: str, name: str = "usage.yaml") -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text, name)
    return [str(fault) for fault in caught.value.faults]


def test_a_summary_is_read_as_the_kubelet_gives_it() -> None:
    usage = load_usage("examples/eviction/summary.json")
    assert isinstance(usage, Usage)
    assert usage.node.swap is not None
    assert usage.node.swap.swap_usage_bytes == 3 << 30
    assert usage.node.memory is not None
    assert usage.node.memory.psi is not None
    assert usage.node.memory.psi.some.avg10 == 11.5
    assert [one.pod_ref.name for one in usage.pods] == ["dns", "queue", "web", "cache", "db"]


def test_nulls_are_what_was_not_observed_and_further_fields_are_passed_over() -> None:
    usage = read('{"node": {"startTime": null, "memory": null, "gpu": {"usageNanoCores": 5}}, "pods": null}')
    assert usage == Usage()


def test_a_table_has_amounts_as_people_write_them() -> None:
    table = read(f"{HEAD}spec: {{available: {{memory.available: 400Mi}}, pods: [{{pod: a/b, memory: 2G}}]}}")
    assert isinstance(table, UsageTable)
    assert table.available == {"memory.available": Quantity.parse("400Mi")}
    assert table.pods[0].memory == Quantity.parse("2G")


WRONG = [
    ("- 1", "usage.yaml: a summary (`node`, `pods`) is wanted, or apiVersion: nodewright.dev/v1alpha1 and"),
    ("{}", "usage.yaml: a summary (`node`, `pods`) is wanted"),
    ("pods: []\n---\npods: []", "usage.yaml: one reading is wanted, not 2 documents"),
    (
        '{"node": {"memory": {"availableBytes": NaN}}}',
        'availableBytes: Invalid value: "NaN": must be a whole number',
    ),
    ('{"node": {"fs": {"capacityBytes": 18446744073709551616}}}', "must be a whole number of 64 bits"),
    ('{"node": {"fs": {"capacityBytes": 1.5}}}', "must be a whole number of 64 bits, not a number"),
    ("node: {memory: {psi: {some: {avg10: much}}}}", "must be a number, not a text"),
    ("node: {memory: {time: yesterday}}", "must be a time such as 2026-01-31T12:00:00Z"),
    (f"{HEAD}spec: {{available: {{memory: 5Gi}}}}", 'spec.available[memory]: Unsupported value: "memory"'),
    (f"{HEAD}spec: {{capacity: {{pid.available: -1}}}}", 'spec.capacity[pid.available]: Invalid value: "-1"'),
    (f"{HEAD}spec: {{pods: [{{pod: a, memory: -1}}]}}", "spec.pods[0].memory: Invalid value"),
    (f"{HEAD}spec: {{pods: [{{memory: 1}}]}}", "spec.pods[0].pod: Required value"),
    (f"{HEAD}spec: {{pod: []}}", 'spec.pod: unknown field; did you mean "pods"?'),
]


@pytest.mark.parametrize(("text", "rule"), WRONG)
def test_what_is_wrong_is_named_with_its_path(text: str, rule: str) -> None:
    (fault,) = faults(text)
    assert rule in fault


def test_a_table_of_pods_in_columns() -> None:
    table = read("pod,container,memory,processes\nshop/web,main,2Gi,12\n\nshop/db,,1Gi,\n", "use.csv")
    assert isinstance(table, UsageTable)
    assert [(one.pod, one.container, str(one.memory)) for one in table.pods] == [
        ("shop/web", "main", "2Gi"),
        ("shop/db", "", "1Gi"),
    ]
    assert table.pods[1].processes is None


CSV_WRONG = [
    (
        "",
        ["use.csv: the first line has to name the columns: pod and some of pod, container, volume, memory,"],
    ),
    ("pod,cpu,cpu\n", ['use.csv:1: Invalid value: "cpu": is no column', "cpu", "use.csv:1: Duplicate value"]),
    ("pod,memory\na,1,2\n", ["use.csv:2: has 3 cells, and the first line names 2 columns"]),
    (
        "pod,memory,logs\na,much,1\n,1,1\na,-1,-2\n",
        [
            'use.csv:2: memory: Invalid value: "much"',
            "use.csv:3: pod: Required value",
            "use.csv:4: memory",
            "logs",
        ],
    ),
    ('pod,memory\n"a,1\n', ["use.csv:2: no CSV: unexpected end of data"]),
]


@pytest.mark.parametrize(("text", "rules"), CSV_WRONG)
def test_all_that_is_wrong_in_columns_is_told_at_once(text: str, rules: list[str]) -> None:
    found = faults(text, "use.csv")
    assert len(found) == len(rules)
    assert all(rule in fault for rule, fault in zip(rules, found, strict=True))


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_usage(str(tmp_path / "none.json"))
