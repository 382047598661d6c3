"""Write the tables of docs/benchmarks.md from the figures of the last `make bench`; what stands below them is kept by hand."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.source import ROOT

FIGURES = ROOT / "build" / "bench.json"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES_OF_RUNS = ROOT / "docs" / "figures"
PAIRED = FIGURES_OF_RUNS / "benchmarks-paired.json"
"""CPU times of each row before and now, in one paired run: `python -m tools bench-compare` writes it."""


class Row(NamedTuple):
    """A line of the table: a workload, the test that times it, and what it is measured against.

    Units: texts, as they are printed.
    """

    workload: str
    test: str
    kubelet: str
    target: str
    pod: str = ""
    """The figure a pod that the test notes: `mean` stands for the mean over pods, with the median beside it."""
    noted: str = ""
    """The figure in seconds that the test notes, in place of the shortest round."""


ADMISSION = "test_node.py::test_every_pod_of_the_recorded_sequences"
MERGE = "test_topology.py::test_8_nodes_every_mask"
CPU = "test_cpu.py::"
COMMANDS = "test_commands.py::"
LARGE = f"{COMMANDS}test_pods_of_a_large_cluster_as_json"
AGENT = "test_agent.py::"
START = "test_startup.py::test_the_command_starts_within_its_budget"
BIG = "big-2s-8n-16c-smt2-l3x8"
WIDE = "big-2s-2n-64c-smt2-l3x8"

ROWS = (
    Row("Admit a pod, 1 NUMA node", f"{ADMISSION}[1]", "mean 0.37 ms, median 0.21 ms", "", "mean"),
    Row("Admit a pod, 2 NUMA nodes", f"{ADMISSION}[2]", "mean 0.54 ms, median 0.30 ms", "", "mean"),
    Row("Admit a pod, 4 NUMA nodes", f"{ADMISSION}[4]", "mean 0.68 ms, median 0.38 ms", "", "mean"),
    Row("Admit a pod, 8 NUMA nodes", f"{ADMISSION}[8]", "mean 2.50 ms, median 0.70 ms", "mean < 0.12 ms", "mean"),
    Row("Admit a pod, all recorded sequences", f"{ADMISSION}[all]", "mean 0.67 ms", "mean < 0.10 ms", "mean"),
    Row("110 pods come and go, 256 CPUs, 8 NUMA nodes",
        f"test_node.py::test_110_pods_come_and_go[container-{BIG}]", "", "< 8 ms"),
    Row("One more guaranteed pod beside 333 others, 8 NUMA nodes",
        "test_node.py::test_one_more_guaranteed_pod[500]", "", "< 1 ms"),
    Row("A critical pod among 500: 4 are preempted", "test_node.py::test_a_critical_pod_among_500_others[8-4]", "", ""),
    Row("A critical pod among 500: 112 are preempted",
        "test_node.py::test_a_critical_pod_among_500_others[60-112]", "", "< 5 ms"),
    Row("CPU hints, 256 CPUs, 8 NUMA nodes", f"{CPU}test_hints_as_a_rule[{BIG}-64]", "7.2 ms", "< 1 ms"),
    Row("CPU hints, 256 CPUs, 2 NUMA nodes", f"{CPU}test_hints_as_a_rule[{WIDE}-64]", "0.11 ms", ""),
    Row("Allocate 64 of 256 CPUs, 2 NUMA nodes, packed",
        f"{CPU}test_allocate_and_remove[anywhere-{WIDE}-64-packed]", "6.0 ms", "< 1.5 ms"),
    Row("Allocate 64 of 256 CPUs, 8 NUMA nodes, packed",
        f"{CPU}test_allocate_and_remove[anywhere-{BIG}-64-packed]", "0.52 ms", "< 1.5 ms"),
    Row("Allocate 64 of 256 CPUs, 2 NUMA nodes, distributed",
        f"{CPU}test_allocate_and_remove[anywhere-{WIDE}-64-distribute]", "2.2 ms", "< 1.5 ms"),
    Row("Distribute 97 CPUs over 8 unlike NUMA nodes",
        f"{CPU}test_distribute_over_uneven_nodes[{BIG}-97]", "28.5 ms", ""),
    Row("Merge 2 providers, all 255 masks of 8 NUMA nodes", f"{MERGE}[2-best-effort]", "10.1 ms", ""),
    Row("Merge 3 providers, all 255 masks of 8 NUMA nodes", f"{MERGE}[3-best-effort]", "5,480 ms", "< 1 ms"),
    Row("Merge 4 providers, all 255 masks of 8 NUMA nodes", f"{MERGE}[4-best-effort]", "about 20 minutes", "< 2 ms"),
    Row("Merge 3 providers that never agree, 8 NUMA nodes", f"{MERGE}_without_agreement[3]", "", "< 1 ms"),
    Row("CPUs, memory and devices, 16 NUMA nodes, idle",
        "test_topology.py::test_cpu_memory_and_devices[16-False-idle]", "beyond its limit", "< 50 ms"),
    Row("CPUs, memory and devices, 16 NUMA nodes, fragmented",
        "test_topology.py::test_cpu_memory_and_devices[16-False-fragmented]", "beyond its limit", "< 50 ms"),
    Row("CPUs, memory and devices, 34 NUMA nodes, 2 with CPUs, fragmented",
        "test_topology.py::test_34_nodes_of_which_2_have_cpus[fragmented]", "beyond its limit", "< 100 ms"),
    Row("CPUs, memory and devices, 64 NUMA nodes, fragmented",
        "test_topology.py::test_cpu_memory_and_devices[64-False-fragmented]", "beyond its limit", "< 100 ms"),
    Row("10,000 pods of 300 controllers of 3.5 kB under a quota, from YAML text",
        "test_quota.py::test_10000_pods_of_300_controllers_from_their_yaml", "", "< 3 s"),
    Row("The same once they are read", "test_quota.py::test_10000_pods_of_300_controllers_once_they_are_read",
        "", "< 500 ms"),
    Row("Devices for the claims of a pod, mean of the recorded ones", "test_claims.py::test_the_claims_of_the_recorded_pods",
        "median 0.4 ms", "mean < 1.2 ms", noted="mean_s"),
    Row("Devices for a claim among 1,000 of 100 slices",
        "test_claims.py::test_a_claim_among_1000_devices_of_100_slices[1]", "", "< 5 ms"),
    Row("The claims of a pod on each of 5,000 nodes of 8 devices",
        "test_claims.py::test_the_claims_of_a_pod_on_5000_nodes_of_8_devices", "", "< 5 s"),
    Row("The same, and why they are refused",
        "test_claims.py::test_why_the_claims_of_a_pod_are_refused_on_5000_nodes_of_8_devices", "", "< 5 s"),
    Row("An hour of a node with 110 pods, played forward",
        "test_eviction.py::test_an_hour_of_110_pods_played_forward[kubelet]", "", "< 200 ms"),
    Row("A week of one-minute samples of 110 pods under a predictor of loans",
        "test_lending.py::test_a_week_of_110_pods[machine-peak]", "", ""),
    Row("`nodewright lend`, a week of one-minute samples of 110 pods, from exec",
        f"{COMMANDS}test_lend_over_a_week_of_110_pods", "", "< 2 s"),
    Row("7,000 pods come to 1,200 nodes at once, each node's CPUs placed",
        "test_fleet.py::test_7000_pods_come_to_1200_nodes", "", "< 3 s"),
    Row("5,000 pods come and go on 300 nodes", "test_fleet.py::test_pods_come_and_go_on_300_nodes[5000]", "", ""),
    Row("20,000 pods come and go on 300 nodes", "test_fleet.py::test_pods_come_and_go_on_300_nodes[20000]",
        "", "< 2.5 s, and 4 times that of 5,000"),
    Row("200,000 pods come and go on 300 nodes", "test_fleet.py::test_pods_come_and_go_on_300_nodes[200000]",
        "", "10 times that of 20,000"),
    Row("10,000 pods come and go on 10,000 nodes",
        "test_fleet.py::test_10000_pods_come_and_go_on_10000_nodes", "", "< 6 s"),
    Row("1,213 nodes and 7,064 pods (GCDA-UDL/k8s-sims), from YAML to the report",
        "test_fleet_files.py::test_traces_from_files_to_the_report[k8s-sims]", "", "< 1.4 s"),
    Row("1,523 nodes and 8,152 pods that come and go (openb), from CSV to the report",
        "test_fleet_files.py::test_traces_from_files_to_the_report[openb]", "", "< 10 s"),
    Row("Read a table of 100,000 pods", "test_fleet_files.py::test_a_table_of_100000_pods", "", ""),
    Row("Read 5,000 manifests that differ in name",
        "test_fleet_files.py::test_manifests_of_5000_pods_that_differ_in_name", "", ""),
    Row("Check the fields of a live pod", "test_manifests.py::test_the_fields_of_a_live_pod", "", "about 0.1 ms"),
    Row("Lint 1,000 parsed manifests, 800 findings with their places",
        "test_lint.py::test_a_thousand_manifests[alone]", "", "< 1,000 ms"),
    Row("Lint 1,000 parsed manifests, each pod put to a node of 256 CPUs",
        "test_lint.py::test_a_thousand_manifests[on a node]", "", ""),
    Row("`nodewright admit`, from exec to answer", f"{START}[admit]", "",
        "CPU time < 2.5 times that of `import msgspec, yaml, click`"),
    Row("`nodewright --help`", f"{START}[help]", "", "< 1.5 times"),
    Row("100 live pods as kubectl prints them, from YAML text",
        "test_manifests.py::test_a_hundred_live_pods_as_kubectl_prints_them", "", ""),
    Row("10,000 live pods of `kubectl get pods -A -o json`: requests", f"{COMMANDS}test_pods_of_a_cluster_as_json[requests]",
        "", "< 2 s"),
    Row("The same: admit, on 256 CPUs", f"{COMMANDS}test_pods_of_a_cluster_as_json[admit]", "", "< 2 s"),
    Row("The same: fleet, on 1,000 nodes", f"{COMMANDS}test_pods_of_a_cluster_as_json[fleet]", "", "< 2 s"),
    Row("10,000 Deployments (30,000 pods) of YAML: read, resolved, linted on a node",
        f"{COMMANDS}test_lint_of_workloads_on_a_node", "", ""),
    Row("`nodewright explain` with counterfactuals, 8 NUMA nodes, 300 pods, from exec",
        f"{COMMANDS}test_explain_with_counterfactuals_beside_300_pods[one]", "", "< 0.5 s"),
    Row("The same with pairs of changes",
        f"{COMMANDS}test_explain_with_counterfactuals_beside_300_pods[pairs]", "", "< 1 s"),
    Row("`nodewright explain` of a pod with 2,000 containers that do not fit, from exec",
        f"{COMMANDS}test_explain_of_2000_containers_that_do_not_fit", "", "< 2 s"),
    Row("`nodewright evict --timeline --advise`, an hour, 110 pods, from exec",
        f"{COMMANDS}test_advice_for_an_hour_of_110_pods", "", "< 0.3 s"),
    Row("`kubectl nodewright admit` over 5,000 nodes and 100,000 pods, lists from the API server included",
        f"{COMMANDS}test_admit_over_5000_nodes_of_a_cluster", "", "10 s of CPU, 300 MiB", noted="cpu_s"),
    Row("100,000 live pods of `kubectl get pods -A -o json` (400 MB): requests", f"{LARGE}[requests]", "", "< 20 s, 1.5 GiB"),
    Row("The same: admit, on 256 CPUs", f"{LARGE}[admit]", "", "< 20 s, 1.5 GiB"),
    Row("The same: fleet, on 1,000 nodes", f"{LARGE}[fleet]", "", "< 20 s, 1.5 GiB"),
    Row("Agent: a decision while 110 static pods start, mean CPU time", f"{AGENT}test_decisions_on_110_static_pods",
        "", "< 1 ms", noted="mean_s"),
    Row("Agent: 110 static pods at once, plain processes, all Running", f"{AGENT}test_110_static_pods_run", "", "< 5 s"),
    Row("Agent at rest with 10 pods: CPU time a minute", f"{AGENT}test_an_agent_at_rest_with_10_pods", "", "< 180 ms",
        noted="cpu_s"),
)  # fmt: skip

HEAD = """# Benchmarks

How long the decisions take, beside the kubelet's own Go code. `make bench` times everything in `benchmarks/` and
writes these tables.

The kubelet's figures are those of Kubernetes v1.36.2's own packages, called in one process on objects in memory
(Go 1.26.6): the shortest of many calls, on a virtual machine with 2 cores of an AMD EPYC. Its whole-node
admission includes its writing of state files to a file system in memory, which ours has no need of. Where there
is no figure, it was not measured; it takes more than 8 NUMA nodes only at one's own risk. The two machines differ:
orders of magnitude are what counts. Our hints are a rule that stands for the kubelet's list of masks. Reasons are part of our times: every decision carries its evidence; it is put
into words only when somebody reads it.

"""


def page(figures: dict[str, Any], paired: dict[str, Any] | None = None, findings: str = "") -> str:
    """The page for the figures that pytest-benchmark wrote, and those of a paired run; what was found stands below."""
    tests = {figure["fullname"].removeprefix("benchmarks/"): figure for figure in figures["benchmarks"]}
    pairs = paired["rows"] if paired else {}
    lines = [
        "| Workload | kubelet (Go) | ours, shortest | ours, median | CPU before | CPU now | target |",
        "|---|---|---|---|---|---|---|",
    ]
    missing = []
    for row in ROWS:
        figure = tests.get(row.test)
        if figure is None and row.test not in pairs:
            missing.append(row.test)
            continue
        cells = [*_figures(row, figure), *map(_text, pairs.get(row.test, ()))]
        cells += [""] * (4 - len(cells))
        lines.append(f"| {row.workload} | {row.kubelet} | {' | '.join(cells)} | {row.target} |")
    if missing:
        print("not timed: " + ", ".join(missing), file=sys.stderr)
    base = ""
    if paired:
        base = f" Before and now: {paired['base']} and {paired['commit']}, {paired['date']}."
    return f"{HEAD}{_conditions(figures)}{base}\n\n" + "\n".join([*lines, *_long_runs()]) + f"\n\n{findings}"


def _long_runs() -> list[str]:
    """A table of the runs that take minutes, of which there are files of figures."""
    million, sweep, joined, status, extender, streams = (
        json.loads((FIGURES_OF_RUNS / f"{name}.json").read_text("utf-8"))
        for name in (
            "fleet-million",
            "fleet-sweep",
            "joined-110-pods",
            "joined-status",
            "extender-load",
            "joined-streams",
        )
    )
    agent, kubelet = joined["agent"], joined["kubelet"]
    one_process = extender["runs"][0]
    filter_ms = {
        when: one_process[when]["filter"]["p99_ms"] for when in ("latencies", "latencies_after_10_s")
    }
    written = [status["agent"][f"{what}, from the runtime"] for what in ("start", "exit")]
    within = " and ".join(str(each["within50"]) for each in written)
    slowest = max(each["worst"] for each in written)
    runs = f"16 runs of a sweep, each {sweep['podsOfEachRun']:,} pods on {sweep['nodes']:,} nodes"
    rows = [
        ("Runs of minutes (`python -m tools ...`)", "took", "target"),
        ("---", "---", "---"),
        (
            f"`bench-fleet million`: {million['pods']:,} pods on {million['nodes']:,} nodes",
            f"{million['cpuSeconds']:.0f} s of CPU, {million['rssMiB']} MiB",
            "100 s of CPU, 300 MiB",
        ),
        (f"`bench-fleet sweep`: {runs}, one process", f"{sweep['oneProcessWallSeconds']:.0f} s", ""),
    ]
    for run in sweep["engines"]:
        report = "equal report" if run["isEqual"] else "another report"
        took = f"{run['wallSeconds']:.0f} s, {run['ofLinear']:.2f} of linear, {report}"
        name = f"The same on {sweep['cpus']} CPUs, engine {run['engine']}"
        rows.append((name, took, "0.9 of linear, byte-equal"))
    rows += [
        (
            f"`extender-load`: filter, {one_process['nodes']:,} nodes, 100 pods a second, 99 % of the calls",
            f"{filter_ms['latencies']:.1f} ms, {filter_ms['latencies_after_10_s']:.1f} after ten seconds",
            "10 ms",
        ),
        (
            f"`joined`: {joined['pods']} pods at once",
            f"{agent['manySeconds']} s",
            f"the kubelet's: {kubelet['manySeconds']} s",
        ),
        (
            "`joined`: memory at rest",
            f"{agent['idleRssMiB']} MiB (kubelet {kubelet['idleRssMiB']})",
            "64 MiB",
        ),
        (
            f"`status-times`: starts and ends of {status['times']} containers, from the runtime's event to the API",
            f"{within} within 50 ms, the slowest {slowest:.0f} ms",
            f"48 of {status['times']} within 50 ms, the slowest 100 ms",
        ),
    ]
    for name, what in (
        ("logs", f"`kubectl logs` of {streams['logMiB']} MiB of short lines"),
        ("exec", f"`kubectl exec` that writes {streams['execMB']} MB"),
        ("copy", f"`kubectl cp` of {streams['copyMB'] // 1000} GB from a container"),
    ):
        ours_s, kubelet_s = (streams[node][f"{name}Seconds"] for node in ("agent", "kubelet"))
        rows.append((f"`stream-times`: {what}", f"{ours_s} s", f"the kubelet's: {kubelet_s} s"))
    return ["", *(f"| {' | '.join(row)} |" for row in rows)]


def _figures(row: Row, figure: dict[str, Any] | None) -> tuple[str, str]:
    """The shortest and the median; empty without a figure."""
    if figure is None:
        return "", ""
    shortest = _text(row_seconds(row, figure))
    if row.noted:
        return shortest, ""
    if row.pod:
        return f"mean {shortest}", _text(figure["extra_info"]["pod_median_s"])
    return shortest, _text(figure["stats"]["median"])


def row_seconds(row: Row, figure: dict[str, Any]) -> float:
    """The figure of the row: the shortest round, the mean over pods of each one's shortest round, or what the test notes."""
    name = "pod_mean_s" if row.pod else row.noted
    seconds: float = figure["extra_info"][name] if name else figure["stats"]["min"]
    return seconds


def _conditions(figures: dict[str, Any]) -> str:
    machine, extra = figures["machine_info"], figures.get("nodewright", {})
    load = f"; load average {extra['load']} when they ended" if extra else ""
    return (
        f"Ours: {figures['datetime'][:10]}, {machine['cpu'].get('brand_raw') or machine['machine']}, "
        f"{machine['cpu'].get('count', '?')} CPUs, {machine['python_implementation']} "
        f"{machine['python_version']}{load}. On a shared machine the shortest of many rounds is the figure "
        "to compare; medians include waiting for others. Admission: each pod counts with its shortest of 5 "
        "rounds, and mean and median are over the pods."
    )


def _text(seconds: float) -> str:
    milliseconds = seconds * 1000
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1
    return f"{milliseconds:.{digits}f} ms"


def main(figures: Path = FIGURES) -> None:
    """Write the page; the load is that of now."""
    result = json.loads(figures.read_text("utf-8"))
    if hasattr(os, "getloadavg"):
        result["nodewright"] = {"load": f"{os.getloadavg()[1]:.1f}"}
    paired = json.loads(PAIRED.read_text("utf-8")) if PAIRED.exists() else None
    _, title, findings = PAGE.read_text("utf-8").partition("## Before and now")
    PAGE.write_text(page(result, paired, title + findings), "utf-8")
    print(f"{PAGE.relative_to(ROOT)} written")
