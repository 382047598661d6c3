"""`nodewright lend` from histories of each form, and what it leaves out of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.predict.lend.lend_report import numa_shares
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod

NODE = "examples/lend/node.yaml"
TABLE = "examples/lend/usage.csv"
EXPORT = ("--usage", "examples/lend/cpu.json", "--usage", "examples/lend/memory.json")


def run_lend(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["lend", "--node", NODE, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = run_lend(capsys, *arguments, "-o", "json")
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def table(tmp_path: Path, rows: str) -> str:
    path = tmp_path / "usage.csv"
    path.write_text(rows)
    return str(path)


def loans(document: dict[str, Any], resource: str) -> dict[str, dict[str, Any]]:
    entries = next(each for each in document["resources"] if each["resource"] == resource)["predictors"]
    return {entry["predictor"]: entry for entry in entries}


def test_a_table_and_prometheus_give_the_same_memory(capsys: pytest.CaptureFixture[str]) -> None:
    by_table, by_export = report(capsys, "--usage", TABLE), report(capsys, *EXPORT)
    assert loans(by_table, "memory") == loans(by_export, "memory")
    assert loans(by_table, "memory")["borg-decay"]["mean"] > 4 << 30
    assert loans(by_table, "cpu")["request"]["hours"] == 0


def test_the_advice_is_tested_by_the_second_half(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_lend(capsys, "--usage", TABLE, "--advise")
    assert code == 3
    assert "cpu: borg-decay with a margin of 0% lends most without a late return in the first half" in out
    assert "1 late." in out


def test_the_page_has_a_plot_for_each_resource(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "lend.html"
    assert run_lend(capsys, "--usage", TABLE, "--html", str(page))[0] == 0
    text = page.read_text()
    assert text.count("<svg role") == 2
    assert "reserved by borg-decay" in text


def test_unusable_samples_are_named_and_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [f"{at * 60},shop/db,500m,3Gi" for at in range(20)]
    rows += ["1140,shop/db,500m,3Gi", "60,shop/db,1,1Gi", "1200,shop/gone,1,1Gi", "1200,shop/db,900,3000"]
    rows += [f"{at * 60},shop/db,500m,3Gi" for at in range(30, 40)]
    document = report(capsys, "--usage", table(tmp_path, "time,pod,cpu,memory\n" + "\n".join(rows)))
    notes = "\n".join(document["leftOut"])
    assert "shop/db: time does not advance (4 samples)" in notes
    assert "shop/gone: not on the node (2 samples)" in notes
    assert "shop/db: cpu beyond what the node has, of another unit (1 sample)" in notes
    assert "shop/db: memory without a unit, too little for bytes (1 sample)" in notes
    assert "shop/db: cpu unknown, counted as the request (9 samples)" in notes
    assert "shop/web: memory unknown, counted as the request (40 samples)" in notes
    memory = loans(document, "memory")["borg-decay"]["lent"]
    assert memory[25] == 0, "stale usage lends nothing"
    assert memory[15] > 0


@pytest.mark.parametrize("order", [1, -1])
def test_amounts_without_unit_are_left_out_wherever_a_unit_stands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, order: int
) -> None:
    cells = ["3000", "3Gi", "3Gi", "3Gi"][::order]
    rows = "".join(f"{at * 60},shop/db,{cell}\n" for at, cell in enumerate(cells))
    document = report(capsys, "--usage", table(tmp_path, f"time,pod,memory\n{rows}"))
    assert "shop/db: memory without a unit, too little for bytes (1 sample)" in document["leftOut"]


def test_containers_beside_their_pod_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = "".join(f"{at * 60},shop/db,{name},3Gi\n" for at in range(4) for name in ("", "db", "proxy"))
    document = report(capsys, "--usage", table(tmp_path, f"time,pod,container,memory\n{rows}"))
    assert "shop/db: memory of a container beside that of the pod (8 samples)" in document["leftOut"]
    (resource,) = document["resources"]
    assert resource["used"] == [(3 + 4 + 3) << 30] * 4


def test_a_counter_that_restarts_is_unknown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = [[at * 60, str((at if at < 10 else at - 10) * 30)] for at in range(20)]
    labels = {
        "__name__": "container_cpu_usage_seconds_total",
        "namespace": "shop",
        "pod": "db",
        "container": "db",
    }
    whole = {**labels, "container": ""}
    series = [{"metric": labels, "values": values}, {"metric": whole, "values": values}]
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    document = report(capsys, "--usage", str(path))
    assert "shop/db/db: the CPU counter restarts (1 sample)" in document["leftOut"]
    assert "series without a container (20 samples)" in document["leftOut"]
    (resource,) = document["resources"]
    assert max(resource["used"]) == 500 + 3000 + 2000


@pytest.mark.parametrize("order", [range(4), (2, 0, 3, 1)])
def test_summaries_in_any_order_are_a_history(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, order: Sequence[int]
) -> None:
    files = []
    for at in order:
        time = f"2026-01-01T00:0{at}:00Z"
        container = {
            "name": "db",
            "cpu": {"time": time, "usageCoreNanoSeconds": at * 30 * 10**9},
            "memory": {"time": time, "workingSetBytes": 3 << 30},
        }
        pod = {"podRef": {"namespace": "shop", "name": "db", "uid": "x"}, "containers": [container]}
        path = tmp_path / f"{at}.json"
        path.write_text(json.dumps({"node": {"nodeName": "worker-7"}, "pods": [pod]}))
        files += ["--usage", str(path)]
    document = report(capsys, *files)
    assert not any("does not advance" in note for note in document["leftOut"])
    assert document["intervalSeconds"] == 60
    assert document["resources"][0]["used"] == [5500, 5500, 5500]
    assert document["resources"][1]["used"] == [(3 + 4 + 3) << 30] * 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("pod,cpu\nshop/db,1\n", "the first line must name time, pod"),
        ("time,pod,cpu\nx,shop/db,1\n", "must be seconds or a timestamp"),
        ("time,pod,cpu\n1,shop/db,-1\n", "must be 0 or more"),
        (f"time,pod,cpu\n1,shop/db,1{'0' * 19}\n", "must fit into 64 bits"),
        (f"time,pod,cpu\n1,shop/db,{'9' * 18}\n", "must fit into 64 bits"),
        ("time,pod,cpu\n1,shop/db\n", "has not as many cells as the first line"),
        ("time,pod,cpu\nnan,shop/db,1\n", "must be seconds or a timestamp"),
        ("time,pod,cpu\n1,shop/db,1\n", "has no two samples of a pod of the node"),
        ("time,pod,cpu\n0,x/y,1\n60,x/y,1\n", "left out: x/y: not on the node"),
        (
            "time,pod,memory\n" + "".join(f"{at},shop/db,{cell}\n" for at in (1, 2) for cell in (3000, "7m")),
            "left out: shop/db: memory without a unit, too little for bytes",
        ),
        (
            "time,pod,cpu\n" + "".join(f"{at},x/{at},1\n" for at in range(1, 6)),
            "x/2: not on the node, x/3: not on the node and 2 more",
        ),
        ("time,pod,cpu\n", "has no sample of cpu or memory"),
        ("time,pod,cpu\n0,shop/db,1\n1,shop/db,1\n8000000000,shop/db,1\n", "at most 600000 are supported"),
    ],
)
def test_faults_name_their_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, rows: str, message: str
) -> None:
    code, out, err = run_lend(capsys, "--usage", table(tmp_path, rows))
    assert (code, out) == (1, "")
    assert message in err


def test_rates_are_no_counters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "rate.json"
    series = {"metric": {"namespace": "shop", "pod": "db", "container": "db"}, "values": [[1, "1"]]}
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}))
    code, _, err = run_lend(capsys, "--usage", str(path))
    assert code == 1
    assert "data.result[0].metric.__name__" in err
    assert "query the metric itself, without a function" in err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"status": "error", "error": "parse error: unexpected <eof>"},
            "error: parse error: unexpected <eof>",
        ),
        (
            {"status": "success", "data": {"resultType": "vector", "result": []}},
            'data.resultType: Invalid value: "vector": must be matrix: ask query_range instead of query',
        ),
    ],
)
def test_answers_that_have_no_history_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: object, message: str
) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer))
    code, _, err = run_lend(capsys, "--usage", str(path))
    assert code == 1
    assert message in err


def test_series_of_restarted_containers_are_in_the_order_of_their_times(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    labels = {"__name__": "container_memory_working_set_bytes", "namespace": "shop", "pod": "db"}
    wrong: list[Any] = [[540, "NaN"], [600, "+Inf"], [660, "much"], [1767225600000, "1"]]
    series: list[Any] = [
        {
            "metric": {**labels, "container": "db", "id": name},
            "values": [*([at * 60, str(3 << 30)] for at in times), *others],
        }
        for name, times, others in (("a", range(5, 9), wrong), ("b", range(5), []))
    ]
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"data": {"resultType": "matrix", "result": series}}))
    document = report(capsys, "--usage", str(path))
    assert document["resources"][0]["used"] == [(3 + 4 + 3) << 30] * 9
    notes = [note for note in document["leftOut"] if "shop/db" in note]
    assert notes == ["shop/db/db: time or amount that is not a number, or not in range (4 samples)"]


def test_loans_of_cpus_lie_where_the_shared_pool_is() -> None:
    without = Node.from_profile(a_profile())
    static = Node.from_profile(a_profile(cpuManagerPolicy="static", reservedSystemCPUs="0"))
    pinned = static.admit(a_guaranteed_pod("pinned", "3/1Gi")).node
    shares = [[each.permille for each in numa_shares(node, "cpu")] for node in (without, static, pinned)]
    assert shares == [[500, 500], [500, 500], [200, 800]]
    assert [each.permille for each in numa_shares(pinned, "memory")] == [500, 500]


def test_loans_of_memory_do_not_lie_where_it_is_pinned() -> None:
    node = Node.from_profile(
        a_profile(
            memoryManagerPolicy="Static",
            cpuManagerPolicy="static",
            reservedSystemCPUs="0",
            reservedMemory=[{"numaNode": 0, "limits": {"memory": "100Mi"}}],
            evictionHard={"memory.available": "100Mi"},
        )
    )
    free = [each.memory for each in node.config.parts.machine.topology]
    pinned = node.admit(a_guaranteed_pod("pinned", "1/1Gi")).node
    shares = [each.permille for each in numa_shares(pinned, "memory")]
    least, most = sorted(((free[0] - (1 << 30)), free[1]))
    assert sorted(shares) == [1000 * least // (least + most), 1000 * most // (least + most)]
    assert shares != [500, 500]


def test_custom_predictors_are_held_to_the_same_rules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from nodewright.policies import predictor\n"
        "@predictor('nothing')\n"
        "def nothing(state, samples):\n"
        "    'Reserves nothing.'\n"
        "    return state, [0] * len(samples.usage)\n"
    )
    document = report(capsys, "--usage", TABLE, "--policies", str(source))
    memory = next(each for each in document["resources"] if each["resource"] == "memory")
    lent = loans(document, "memory")["nothing"]["lent"]
    assert all(a + used <= memory["requested"] for a, used in zip(lent, memory["used"], strict=True))
