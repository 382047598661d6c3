"""The page of benchmarks names tests that there are, and every figure that was taken."""

import ast

from tools.benchmarks import ROWS, page
from tools.source import modules

TIMED = {
    f"{module.path.name}::{node.name}"
    for module in modules("benchmarks")
    for node in module.tree.body
    if isinstance(node, ast.FunctionDef)
}
MACHINE = {"cpu": {"brand_raw": "CPU"}, "python_implementation": "CPython", "python_version": "3.11"}


def test_every_row_is_timed_by_a_test_that_there_is() -> None:
    assert {row.test.partition("[")[0] for row in ROWS} <= TIMED


def test_a_row_has_the_shortest_and_the_median_and_a_pod_its_mean() -> None:
    first, last = ROWS[0], next(row for row in ROWS if row.test.endswith("test_110_static_pods_run"))
    figures = {
        "datetime": "2026-01-02T03:04:05",
        "machine_info": MACHINE,
        "benchmarks": [
            {
                "fullname": f"benchmarks/{first.test}",
                "stats": {},
                "extra_info": {"pod_mean_s": 2e-4, "pod_median_s": 1e-4},
            },
            {"fullname": f"benchmarks/{last.test}", "stats": {"min": 0.25, "median": 0.5}},
        ],
    }
    other = ROWS[5]
    paired = {
        "base": "b",
        "commit": "c",
        "date": "d",
        "rows": {last.test: [0.2, 0.1], other.test: [0.3, 0.2]},
    }
    lines = [line for line in page(figures, paired).splitlines() if line.startswith("| ")]
    runs = lines.index("| Runs of minutes (`python -m tools ...`) | took | target |")
    assert [line.count("|") for line in lines[runs:]] == [4] * len(lines[runs:])
    assert lines[runs + 2].startswith("| `bench-fleet million`: 1,000,000 pods on 10,000 nodes | ")
    assert lines[1:runs] == [
        f"| {first.workload} | {first.kubelet} | mean 0.200 ms | 0.100 ms |  |  | {first.target} |",
        f"| {other.workload} | {other.kubelet} |  |  | 300.0 ms | 200.0 ms | {other.target} |",
        f"| {last.workload} |  | 250.0 ms | 500.0 ms | 200.0 ms | 100.0 ms | {last.target} |",
    ]
    noted = next(row for row in ROWS if row.noted)
    figure = {"fullname": f"benchmarks/{noted.test}", "stats": {"min": 9}, "extra_info": {noted.noted: 0.25}}
    lines = page({**figures, "benchmarks": [figure]}).splitlines()
    assert f"| {noted.workload} | {noted.kubelet} | 250.0 ms |  |  |  | {noted.target} |" in lines
    lines = page(figures).splitlines()
    assert "2026-01-02, CPU" in "".join(lines)
