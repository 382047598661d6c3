"""Usage readings in files."""

from pathlib import Path

import pytest

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.usage_files import UsageReading, load_usage, usage_from_file
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.scenario import UsageTable
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.quantity import Quantity

HEAD = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\n"


def read(text: str, name: str = "usage.yaml") -> UsageReading:
    return usage_from_file(InputFile(name, text.encode()))


def faults(text: str, name: str = "usage.yaml") -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text, name)
    return [str(fault) for fault in caught.value.faults]


def test_a_summary_is_read_as_the_kubelet_gives_it() -> None:
    usage = load_usage("examples/eviction/summary.json")
    assert isinstance(usage, StatsSummary)
    assert usage.node.swap is not None
    assert usage.node.swap.swap_usage_bytes == 3 << 30
    assert usage.node.memory is not None
    assert usage.node.memory.psi is not None
    assert usage.node.memory.psi.some.avg10 == 11.5
    assert [pod.pod_ref.name for pod in usage.pods] == ["dns", "queue", "web", "cache", "db"]


def test_nulls_are_unobserved_values_and_other_fields_are_ignored() -> None:
    usage = read('{"node": {"startTime": null, "memory": null, "gpu": {"usageNanoCores": 5}}, "pods": null}')
    assert usage == StatsSummary()


def test_a_table_has_amounts_as_people_write_them() -> None:
    table = read(f"{HEAD}spec: {{available: {{memory.available: 400Mi}}, pods: [{{pod: a/b, memory: 2G}}]}}")
    assert isinstance(table, UsageTable)
    assert table.available == {"memory.available": Quantity.parse("400Mi")}
    assert table.pods[0].memory == Quantity.parse("2G")


WRONG = [
    ("- 1", "usage.yaml: expected a summary (`node`, `pods`), or apiVersion: nodewright.dev/v1alpha1 and"),
    ("{}", "usage.yaml: expected a summary (`node`, `pods`)"),
    ("pods: []\n---\npods: []", "usage.yaml: expected one reading, not 2 documents"),
    (
        '{"node": {"memory": {"availableBytes": NaN}}}',
        'availableBytes: Invalid value: "NaN": must be a 64-bit integer',
    ),
    ('{"node": {"fs": {"capacityBytes": 18446744073709551616}}}', "must be a 64-bit integer"),
    ('{"node": {"fs": {"capacityBytes": 1.5}}}', "must be a 64-bit integer, not a number"),
    ("node: {memory: {psi: {some: {avg10: much}}}}", "must be a number, not a string"),
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
    assert [(pod.pod, pod.container, str(pod.memory)) for pod in table.pods] == [
        ("shop/web", "main", "2Gi"),
        ("shop/db", "", "1Gi"),
    ]
    assert table.pods[1].processes is None


CSV_WRONG = [
    (
        "",
        ["use.csv: the first line must name the columns: pod and some of pod, container, volume, memory,"],
    ),
    (
        "pod,cpu,cpu\n",
        ['use.csv:1: Invalid value: "cpu": unknown column', "cpu", "use.csv:1: Duplicate value"],
    ),
    ("pod,memory\na,1,2\n", ["use.csv:2: 3 cells, but the header has 2 columns"]),
    (
        "pod,memory,logs\na,much,1\n,1,1\na,-1,-2\n",
        [
            'use.csv:2: memory: Invalid value: "much"',
            "use.csv:3: pod: Required value",
            "use.csv:4: memory",
            "logs",
        ],
    ),
    ('pod,memory\n"a,1\n', ["use.csv:2: not valid CSV: unexpected end of data"]),
]


@pytest.mark.parametrize(("text", "rules"), CSV_WRONG)
def test_all_faults_of_columns_are_reported_at_once(text: str, rules: list[str]) -> None:
    texts = faults(text, "use.csv")
    assert len(texts) == len(rules)
    assert all(rule in fault for rule, fault in zip(rules, texts, strict=True))


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_usage(str(tmp_path / "none.json"))
