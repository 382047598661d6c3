"""`nodewright fleet`."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.cli.fleet import fleet as fleet_command
from nodewright.documents.output.terminal import ERROR
from nodewright.fleet import sweep_runs
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.simulation.fleet_simulation import Progress
from nodewright.fleet.sweep_runs import RunProgress, SweepRun

NODES = ("--nodes", "examples/fleet/nodes.yaml", "--shapes", "label:example.com/machine")
PODS = ("--pods", "examples/fleet/pods.yaml")
PROBE = "examples/fleet/probe.yaml"
TABLES = ("--nodes", "examples/fleet/nodes.csv", "--pods", "examples/fleet/pods.csv")


def run_fleet(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["fleet", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_run_is_meant_where_no_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_fleet(capsys, *NODES, *PODS)
    assert run_fleet(capsys, "run", *NODES, *PODS) == (code, out, err)
    assert code == 3
    assert out.startswith("9 nodes, 33 pods: 29 running, 4 waiting\n")
    assert "from --shapes: NUMA nodes, cores and caches (3 2x2x4x2)" in out
    assert err == (
        "warning: data/giant (examples/fleet/pods.yaml:61): no node can ever hold it: cpu: 80 requested, "
        "at most 31 allocatable on a node\n"
    )


def test_every_pod_placed_is_a_yes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    code, out, _ = run_fleet(capsys, *TABLES, "-o", "json", "--html", str(page))
    assert code == 0
    document = json.loads(out)
    assert document["counts"] == {"nodes": 4, "pods": 40, "ended": 40}
    assert document["assumed"] == {
        "shapes": {"1x1x8x2": 4},
        "shapesByRule": {},
        "nodesWithSystemCore": 4,
        "nodesWithSystemMemory": 4,
        "policies": {"cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort"},
    }
    drawn = page.read_text("utf-8")
    assert drawn.startswith("<!doctype html>")
    assert "assumed: NUMA nodes" in drawn


@pytest.mark.parametrize("sweep", [(), ("--sweep", "topologyManagerPolicy=none,restricted")])
def test_a_probe_that_is_spread_fits_at_most_so_often(
    sweep: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    probe = yaml.safe_load(Path(PROBE).read_text())
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    probe["spec"]["topologySpreadConstraints"] = [spread]
    (tmp_path / "probe.yaml").write_text(yaml.safe_dump(probe))
    for path, is_said in ((PROBE, False), (str(tmp_path / "probe.yaml"), True)):
        _, out, _ = run_fleet(capsys, *NODES, *PODS, "--probe", path, *sweep)
        assert ("at most: topology spread not counted" in out) == is_said
        assert ("topologyManagerPolicy best-effort (" in " ".join(out.split())) == (not sweep)
        _, out, _ = run_fleet(capsys, *NODES, *PODS, "--probe", path, *sweep, "-o", "json")
        report = json.loads(out)
        rooms = [each["room"] for each in report["sweep"]] if sweep else [report["room"]]
        assert {tuple(room["notCounted"]) for room in rooms} == {("topology spread",) * is_said}
        assert set(report["assumed"]["policies"]) == {"cpuManagerPolicy", "topologyManagerPolicy"} - {
            name for name in ("topologyManagerPolicy",) if sweep
        }


def test_quotas_count_neither_in_a_run_nor_in_a_capacity(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pod = {"metadata": {"name": "p"}, "spec": yaml.safe_load(Path(PROBE).read_text())["spec"]}
    deployment: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    labels = {"matchLabels": {"app": "d"}}
    template = {**pod, "metadata": {"labels": {"app": "d"}}}
    deployment["spec"] = {"replicas": 200, "selector": labels, "template": template}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": 1}},
    }
    path, probe = tmp_path / "pods.yaml", tmp_path / "probe.yaml"
    path.write_text(yaml.safe_dump_all([deployment, quota]))
    probe.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod}))
    _, out, err = run_fleet(capsys, *NODES, "--pods", str(path), "--extender", "-o", "json")
    running = json.loads(out)["counts"]["running"]
    assert "ResourceQuotas (1) are not applied" in err
    _, out, _ = run_fleet(capsys, "capacity", *NODES, "-f", str(probe), "-o", "json")
    assert json.loads(out)["capacity"][0]["fits"] == running > 1


def test_a_pod_that_no_node_is_feasible_for_is_said_to_fit_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    probe = yaml.safe_load(Path(PROBE).read_text())
    probe["spec"]["nodeSelector"] = {"no": "where"}
    (tmp_path / "probe.yaml").write_text(yaml.safe_dump(probe))
    code, out, _ = run_fleet(capsys, "capacity", *NODES, "-f", str(tmp_path / "probe.yaml"))
    assert code == 3
    assert "0 more fit" in out
    assert "no node is feasible" in out


def test_a_sweep_puts_policies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ("--sweep", "topologyManagerPolicy=best-effort,single-numa-node", "--probe", PROBE)
    code, out, err = run_fleet(capsys, *NODES, *PODS, *sweep)
    assert code == 3
    lines = [line for line in out.splitlines() if "topologyManagerPolicy" in line]
    assert [line.split()[:3] for line in lines] == [
        ["29", "4", "0"],
        ["23", "2", "8"],
        ["TopologyAffinityError", "1", "topologyManagerPolicy=single-numa-node"],
    ]
    assert err.count("giant") == 1
    _, out, _ = run_fleet(capsys, *NODES, *PODS, *sweep, "-o", "json")
    both = json.loads(out)["sweep"]
    assert [each["settings"]["topologyManagerPolicy"] for each in both] == ["best-effort", "single-numa-node"]
    assert [each["room"]["fits"] for each in both] == [15, 30]


def test_a_page_of_a_sweep_compares_its_runs_and_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795449600")
    page = tmp_path / "sweep.html"
    sweep = ("--sweep", "topologyManagerPolicy=best-effort,single-numa-node", "--probe", PROBE)
    assert run_fleet(capsys, *NODES, *PODS, *sweep, "--html", str(page))[0] == 3
    drawn = page.read_text("utf-8")
    assert "<h1>2 runs of a fleet</h1>" in drawn
    assert '<td>topologyManagerPolicy=single-numa-node</td><td class="number">23</td>' in drawn
    assert "<h3>More pods like the probe</h3>" in drawn
    assert "<dd>nodewright fleet --nodes examples/fleet/nodes.yaml --shapes" in drawn
    assert "<dt>Date</dt><dd>2026-11-23 16:00 UTC</dd>" in drawn


def test_the_date_of_a_page_must_be_a_number_of_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    code, _, err = run_fleet(capsys, *TABLES, "--html", str(tmp_path / "fleet.html"))
    assert code == 1
    assert 'SOURCE_DATE_EPOCH: Invalid value: "soon": must be seconds since 1970' in err


def test_scores_of_the_scheduler_can_be_swept(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_fleet(capsys, *TABLES, "--sweep", "scores=default,most-allocated")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["scores=default", "scores=most-allocated"]


@pytest.mark.slow
def test_a_sweep_is_the_same_with_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = (*NODES, *PODS, "--sweep", "topologyManagerPolicy=best-effort,single-numa-node", "-o", "json")
    assert run_fleet(capsys, *sweep, "--workers", "2") == run_fleet(capsys, *sweep)


def test_a_fleet_is_divided_into_clusters_by_a_label(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_fleet(capsys, *NODES, *PODS, "--shards", "pool")
    assert code == 3
    assert [line.split() for line in out.splitlines()[1:4]] == [
        ["13", "4", "0", "pool=compute"],
        ["8", "2", "0", "pool=general"],
        ["1", "5", "0", "pool=gpu"],
    ]
    assert err.count("warning") == 1
    _, out, _ = run_fleet(
        capsys, *NODES, *PODS, "--shards", "pool", "--sweep", "scores=default,best-fit", "-o", "json"
    )
    both = json.loads(out)["sweep"]
    assert [each["settings"]["pool"] for each in both] == ["compute", "general", "gpu"] * 2
    assert sum(each["counts"]["pods"] for each in both) == 2 * 33


def test_capacity_counts_additional_pods(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_fleet(capsys, "capacity", "-f", PROBE, *NODES, *PODS)
    assert code == 0
    assert out.startswith("default/probe: 15 more fit\n")
    sweep = ("--sweep", "topologyManagerPolicy=best-effort,single-numa-node")
    code, out, _ = run_fleet(capsys, "capacity", "-f", PROBE, *NODES, *sweep, "-o", "yaml")
    assert code == 0
    assert out.count("fits: 33") == 2


def test_minimise_reports_the_fewest_nodes_and_whether_that_is_proved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run_fleet(capsys, "minimise", *TABLES)
    assert code == 0
    assert out.endswith("4 nodes for the workload, proved minimal\n")
    code, out, _ = run_fleet(capsys, "minimise", *TABLES, "--exact", "-o", "json")
    assert json.loads(out) | {"runs": 0} == {
        "apiVersion": "nodewright.dev/v1alpha1",
        "kind": "MinimumNodesReport",
        "nodes": 4,
        "bound": 4,
        "proved": True,
        "complete": True,
        "boundBy": "linear program",
        "runs": 0,
        "kinds": [{"name": "node-0", "shape": "1x1x8x2 64Gi", "nodes": 4}],
    }


def test_no_number_of_nodes_holds_a_pod_that_is_too_large_for_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run_fleet(capsys, "minimise", *NODES, *PODS)
    assert code == 3
    assert out.startswith("no number of these nodes")
    assert "data/giant" in err


def test_generated_tables_are_the_same_each_time_and_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def generate(name: str) -> tuple[str, str]:
        paths = tmp_path / f"{name}-nodes.csv", tmp_path / f"{name}-pods.csv"
        files = ("--nodes-file", str(paths[0]), "--pods-file", str(paths[1]))
        assert run_fleet(capsys, "generate", "--seed", "3", "--nodes", "6", "--pods", "40", *files)[0] == 0
        return str(paths[0]), str(paths[1])

    one, other = generate("one"), generate("other")
    assert [Path(path).read_bytes() for path in one] == [Path(path).read_bytes() for path in other]
    code, out, _ = run_fleet(capsys, "--nodes", one[0], "--pods", one[1])
    assert code in (0, 3)
    assert out.startswith("6 nodes, 40 pods: ")


def test_parquet_holds_a_row_a_pod(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    polars = pytest.importorskip("polars", reason="the extra parquet is not installed")
    path = tmp_path / "pods.parquet"
    assert run_fleet(capsys, *TABLES, "--parquet", str(path))[0] == 0
    frame = polars.read_parquet(path)
    assert frame.height == 40
    assert frame["outcome"].to_list() == ["ended"] * 40


def test_ctrl_c_ends_the_run_and_reports_the_results_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pods = tmp_path / "pods.csv"
    rows = "".join(f"pod-{number},1m,1Mi,{number},60\n" for number in range(300))
    pods.write_text(f"name,cpu,memory,arrives,runs\n{rows}")
    show_progress = RunProgress.show_progress

    def pressed(self: RunProgress, progress: Progress) -> bool:
        signal.raise_signal(signal.SIGINT)
        return show_progress(self, progress)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(RunProgress, "show_progress", pressed)
    code, out, _ = run_fleet(capsys, *TABLES[:2], "--pods", str(pods))
    assert code == 3
    assert "interrupted at " in out
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_the_result_is_written_cuts_nothing_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_fleet(capsys, *TABLES)

    def pressed(*given: Any) -> FleetSummary:
        signal.raise_signal(signal.SIGINT)
        return fleet_summary(*given)

    monkeypatch.setattr(fleet_command, "fleet_summary", pressed)
    assert run_fleet(capsys, *TABLES) == expected


def test_an_interrupted_sweep_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pods = tmp_path / "pods.csv"
    rows = "".join(f"pod-{number},1m,1Mi,{number},60\n" for number in range(300))
    pods.write_text(f"name,cpu,memory,arrives,runs\n{rows}")
    show_progress = RunProgress.show_progress

    def pressed(self: RunProgress, progress: Progress) -> bool:
        signal.raise_signal(signal.SIGINT)
        return show_progress(self, progress)

    monkeypatch.setattr(RunProgress, "show_progress", pressed)
    sweep = (*TABLES[:2], "--pods", str(pods), "--sweep", "scores=default,best-fit")
    code, out, _ = run_fleet(capsys, *sweep)
    assert code == 3
    assert out.startswith("interrupted: complete runs: 0 of 2; results so far:\n")
    assert [line.split()[-1] for line in out.splitlines()[2:3]] == ["scores=default"]
    code, out, _ = run_fleet(capsys, *sweep, "-o", "json")
    assert (code, json.loads(out)["complete"]) == (3, False)


def test_capacity_of_an_incomplete_run_is_not_reported_as_success(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pods = tmp_path / "pods.csv"
    rows = "".join(f"pod-{number},1m,1Mi,{number},60\n" for number in range(300))
    pods.write_text(f"name,cpu,memory,arrives,runs\n{rows}")
    show_progress = RunProgress.show_progress

    def pressed(self: RunProgress, progress: Progress) -> bool:
        signal.raise_signal(signal.SIGINT)
        return show_progress(self, progress)

    monkeypatch.setattr(RunProgress, "show_progress", pressed)
    room = ("capacity", "-f", "examples/fleet/probe.yaml", *TABLES[:2], "--pods", str(pods))
    code, out, _ = run_fleet(capsys, *room, "--sweep", "cpuManagerPolicy=none,static")
    assert code == 3
    assert out.startswith("interrupted at 1m3s of virtual time")
    assert "cpuManagerPolicy=static" not in out
    code, out, _ = run_fleet(capsys, *room, "-o", "json")
    assert (code, json.loads(out)["complete"]) == (3, False)
    code, out, _ = run_fleet(capsys, "minimise", *TABLES[:2], "--pods", str(pods))
    assert (code, out) == (
        3,
        "interrupted after 1 run: no sufficient number was found; fewer than 1 cannot hold the workload\n",
    )


def test_interrupted_workers_without_results_report_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_runs, "map_chunks", interrupted)
    code, out, _ = run_fleet(capsys, *TABLES, "--sweep", "scores=default,best-fit", "--workers", "2")
    assert code == 3
    assert out.startswith("interrupted: complete runs: 0 of 2\nassumed: ")


def test_interrupted_workers_report_their_results(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(
        function: Callable[[SweepRun], Any], chunks: Sequence[SweepRun], **_: object
    ) -> Iterator[Any]:
        yield function(chunks[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_runs, "map_chunks", interrupted)
    code, out, _ = run_fleet(capsys, *TABLES, "--sweep", "scores=default,best-fit", "--workers", "2")
    assert code == 3
    assert out.startswith("interrupted: complete runs: 1 of 2; results so far:\n")


def test_pods_are_evicted_when_a_node_runs_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    usage, pods, nodes = tmp_path / "usage.csv", tmp_path / "pods.csv", tmp_path / "nodes.csv"
    nodes.write_text("name,cpu,memory\nn1,4,8Gi\n")
    pods.write_text("name,cpu,memory,qos,arrives,runs\ngreedy,1,1Gi,Burstable,0,600\nmodest,1,1Gi,,0,600\n")
    usage.write_text("name,at,memory\nmodest,0,100Mi\ngreedy,0,1Gi\ngreedy,60,8Gi\n")
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    fleet = ("--nodes", str(nodes), "--pods", str(pods), "--kubelet-config", str(kubelet))
    _, out, _ = run_fleet(capsys, *fleet, "--usage", str(usage), "-o", "json")
    assert {pod["name"]: pod["outcome"] for pod in json.loads(out)["pods"]} == {
        "greedy": "evicted",
        "modest": "ended",
    }
    assert run_fleet(capsys, *fleet)[0] == 0
    usage.write_text("name,at,memory\ngreedy,soon,1Gi\n")
    _, _, err = run_fleet(capsys, *fleet, "--usage", str(usage))
    assert f'{usage}:2: at: Invalid value: "soon": must be seconds' in err


def test_a_run_ends_when_it_is_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_fleet(capsys, *TABLES, "--until", "1m", "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert document["counts"]["running"] > 0
    assert max(pod["arrivedSeconds"] for pod in document["pods"]) <= 60
    assert (document["complete"], document["endedSeconds"]) == (True, 60)
    assert run_fleet(capsys, *TABLES, "--until", "1000h") == run_fleet(capsys, *TABLES)


FAULTS = [
    ((*TABLES, "--until", "-5s"), 2, "must not be negative"),
    ((*TABLES, "--until", "soon"), 2, "soon"),
    ((*TABLES, "--sweep", "a=1", "--parquet", "x"), 2, "--parquet cannot be combined"),
    ((), 2, "specify nodes with --nodes FILE, or nodes and pods with -f FILE"),
    ((*TABLES, "--sweep", "topologyManagerPolicy"), 1, "must be FIELD=VALUE,VALUE"),
    ((*TABLES, "--sweep", "a=1", "--sweep", "a=2"), 1, "a is given twice"),
    (
        (*TABLES, "--sweep", "scores=worst"),
        1,
        "default, most-allocated, best-fit, numa-aware",
    ),
    (
        (*TABLES, "--shards", "rack"),
        1,
        "metadata.labels[rack]: --shards: the node has no label rack",
    ),
    ((*TABLES, "--gpu-annotation", "example.com/gpu"), 1, "no node has this resource"),
    ((*TABLES, "--sweep", "topologyManagerPolicy=some"), 1, "topologyManagerPolicy"),
    (("--nodes", "nowhere.csv"), 1, "nowhere.csv: cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), FAULTS)
def test_faults_are_reported(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = run_fleet(capsys, *arguments)
    assert (found, said in err) == (code, True), err


def test_custom_scores_choose_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--policies", "examples/fleet/scorers.py")
    code, out, _ = run_fleet(capsys, *TABLES, *own, "--scores", "few-pods", "-o", "json")
    assert code == 0
    assert json.loads(out)["counts"]["ended"] == 40
    code, out, _ = run_fleet(capsys, *TABLES, *own, "--sweep", "scores=default,few-pods")
    assert code == 0
    code, _, err = run_fleet(capsys, *TABLES, "--scores", "few-pods")
    assert code == 1
    assert "must be one of default, most-allocated, best-fit, numa-aware" in err


def test_pods_may_be_left_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_fleet(capsys, *NODES, *PODS, "--no-preemption")
    assert code == 3
    assert out.startswith("9 nodes, 33 pods")


@pytest.mark.parametrize(
    "time", ["1e300", "1e11", "-1", "nan", "inf", "9" * 400, "1" + "0" * 4000, "1_0", "\u0661", ""]
)
@pytest.mark.parametrize("table", ["pods", "usage"])
def test_times_of_tables_are_bounded(
    table: str, time: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.csv"
    if table == "pods":
        path.write_text(f"name,cpu,memory,arrives,runs\na,1,1Gi,0,{time}\n")
        options = ["--pods", str(path)]
    else:
        path.write_text(f"name,namespace,at,memory\njob-1,default,{time},1Gi\n")
        options = ["--pods", "examples/fleet/pods.csv", "--usage", str(path)]
    code = run(["fleet", "run", "--nodes", "examples/fleet/nodes.csv", *options])
    if table == "pods" and not time:
        assert code != ERROR  # It runs for ever.
        return
    assert code == ERROR
    assert "must be seconds, 0 or more, at most 10,000,000,000" in capsys.readouterr().err


LENDING = (*NODES, *PODS, "--usage", "examples/fleet/usage.csv")


@pytest.mark.parametrize("output", [(), ("-o", "json"), ("-o", "wide")])
def test_a_fleet_that_lends_nothing_equals_one_that_does_not_lend(
    capsys: pytest.CaptureFixture[str], output: tuple[str, ...]
) -> None:
    code, out, err = run_fleet(capsys, *LENDING, *output)
    lending = run_fleet(capsys, *LENDING, *output, "--lend", "request")
    assert lending == (code, out, f"{err}--lend: request lends nothing\n")


def test_loans_of_a_fleet_stand_beside_what_is_not_requested(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_fleet(capsys, *LENDING, "--lend", "borg-decay:20")
    assert "\nborg-decay          20% " in out
    _, out, _ = run_fleet(capsys, *LENDING, "--lend", "borg-decay:20", "-o", "json")
    loans = json.loads(out)["loans"]
    assert loans["lending"]["predictor"] == "borg-decay"
    assert loans["lending"]["mean"] > loans["without"]["mean"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*TABLES, "--lend", "borg-decay"), 1, "needs the pods' usage over time: --usage FILE"),
        ((*LENDING, "--lend", "guess"), 1, "guess"),
        ((*LENDING, "--lend", "borg-decay:-1"), 1, "with a margin from 0 to 1000"),
        ((*LENDING, "--lend", "borg-decay", "--sweep", "scores=default"), 2, "cannot be combined"),
    ],
)
def test_loans_that_cannot_be_judged_are_errors(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int, message: str
) -> None:
    answer, out, err = run_fleet(capsys, *arguments)
    assert (answer, out) == (code, "")
    assert message in err
