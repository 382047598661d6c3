"""Write docs/benchmarks.md from the figures of the last `make bench`: what was timed, the kubelet, ours, the target."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.fleet_cost import MILLION, SWEEP
from tools.source import ROOT

FIGURES = ROOT / "build" / "bench.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PAIRED = ROOT / "docs" / "figures" / "benchmarks-paired.json"
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
writes this page; it is not kept by hand.

The kubelet's figures are those of Kubernetes v1.36.2's own packages, called in one process on objects in memory
(Go 1.26.6): the shortest of many calls, on a virtual machine with 2 cores of an AMD EPYC. Its whole-node
admission includes its writing of state files to a file system in memory, which ours has no need of. Where there
is no figure, it was not measured; it takes more than 8 NUMA nodes only at one's own risk. The two machines differ:
orders of magnitude are what counts. Our hints are a rule that stands for the kubelet's list of masks. Reasons are part of our times: every decision carries its evidence; it is put
into words only when somebody reads it.

"""


FINDINGS = """
## Before and now

The columns before and now are the least CPU times of a paired run: both commits take turns at each file of benchmarks on the
same machine, so their ratio counts and not their size, which depends on what else ran. `python -m tools bench-compare` measures them against
the last release, `python -m tools bench-compare COMMIT` against any commit, and fails where a row takes more than a fifth longer. Commands
that 0.2.0 had are measured by today's benchmarks.

Three rows gain nothing against 0.2.0: lint has more rules and checks pods as an API server does, and so does the creation of
pods under a quota. Positions of findings are half of the lint of parsed manifests; libyaml's events, of which they are made,
are most of that.

How cost grows with pods, nodes, NUMA nodes and devices is measured by `python -m tools bench-growth`
([figures](figures/growth.json)):

![CPU seconds by size](figures/growth.svg)

How the cost of each command grows with containers (that fit, and that do not), init containers, pods, namespaces, rules, terms, devices and CPUs is measured by
`python -m tools growth` ([figures](figures/command-growth.json), with seed, commit and date). The exponent is that of what the size
adds to the cost of the smallest input; none is above 1.1 but one: `agent --dry-run` by containers of one pod. The agent decides
after every container that starts, and builds the whole status of the pod each time: 200 containers of a pod take 2 s.

## Where the time goes

**Fleets: decisions of nodes.** Equal states hardly occur once pods have ended, because a state has the pods' order and
uids. What is left of CPUs, memory and devices occurs again: on 1,000 nodes with 100,000 pods, 12,898 of 98,687 grants differ.
They are remembered by that ([decision 34](decisions/0034-shared-decisions-of-fleets.md)).

On 300 nodes of 96 CPUs with pods of 21 kinds nearly every set of free CPUs is a new one: of 20,000 grants 17,136 differ, of as
many releases 18,593. There the alignment remains, a third of the run. Its hints and merge recur (1,922 of 14,835 differ), but
making CPU hints and merging them is a twentieth of the sampled time, and a key of free CPUs and requests takes back part of it:
they are not remembered. The choice of CPUs hardly recurs: 12,020 of 14,834 differ.

The time of a run is linear in its pods: 200,000 took 10.3 times the CPU time of 20,000 and now take 9.5 times, although the nodes
are still filling up in the first fifth of 20,000 (86 % of those pods need a new decision, 95 % later). What grew was the garbage
collector's share, 3 % at 20,000 pods and 7 % at 100,000: it went through the remembered decisions again and again, and of all
objects that 40,000 pods leave only 13,000 are in cycles. A run now collects after 1,000,000 new objects. Decisions are in two
tables instead of two dictionaries for each state, and scores in lists. All this is 0.3 to 1.6 % of the instructions but 7 % of the CPU
time of 20,000 pods and 11 % of that of 200,000 (in turns, at a load of 8 to 50): memory that is not fetched.

The runs of a sweep are independent processes; a worker costs 0.3 s to start. Sixteen runs on two CPUs take 0.72 to 0.89 of linear, and two runs
that know nothing of each other take 1.1 to 1.2 times as long side by side as alone on this machine: so much it loses itself.

**Claims on many nodes.** Why a pod's claims get no devices differs from node to node in names only, of the node and of the claims that
hold its devices, if nodes have devices of one kind: values of attributes that no selector and no constraint reads do not count. The
answer is computed once for them, and gets the names of each. Of 5,000 nodes with 8 GPUs that four claims hold, from a List of 27 MB,
that took 2.7 s of CPU time instead of 9.7 s, and reading 5.8 s instead of 7.4 s, on a machine with much other load; half of what is
left is reading and validating slices and claims.

**Fleets: the scheduler.** Nodes of equal allocatable resources of which as much is requested are a group: a pod fits on each or on
none, with the same score. For each choice the scheduler looks at the groups that have got a node, with a lower number than their
others, since the last pod of the same kind. What a kind of pods knows of a group stays true, also while the group is empty, and
kinds that request the same CPU and memory share scores. A group whose bound of all pods' scores is below the best one, or
equal with a higher number, is deferred. Before, each kind of pods looked at every node that had changed: 100,000 pods of 30 kinds on
10,000 nodes took 3.5 million looks and 5.4 million operations of heaps, and now take 0.5 and 0.8 million: 0.31 of the CPU time of
0.2.0, where it was 0.41. k8s-sims takes 0.85 of the time it took. Where nodes are hardly ever equal, groups cost more
than they save: 20,000 pods on 300 nodes take 1.1 to 1.2 times as long (each pair side by side on two CPUs).
The rows of fleets, but for their CPU columns, are of a day on which the machine took a sixth to a third longer for the same code.
Buckets of nodes by their bounds instead, so that kinds of pods skip those whose bounds are too low, gain nothing: a bound is about
13 points above the score, and most nodes that change are within that.

Counted in instructions (cachegrind, which other load does not change), a pod that comes and goes on 300 nodes took 636,000 and
now takes 561,000: half of the difference are fewer calls while nodes are ranked and pods admitted, the other half CPUs that return
to the shared pool at once, instead of by a state for each manager, and fewer counters. Since then it is
7 % less (580,000 instead of 626,000 for the third and fourth thousand pods, while the nodes fill up): where only CPUs change
hands, what is left of memory and devices is not compared again, and cores that differ in their lowest CPU only are compared
all at once, by shifting the free CPUs. What is left: the alignment a quarter, the scheduler's comparison a quarter,
the ends of pods an eighth, and the rest in arrivals, queues, records and what the kubelets look up.

**The extender.** A pod among 5,000 nodes took 14 ms of CPU time from filter to bind, half of it in looking up 1,000 verdicts node by
node and in the layers of the web framework; now each kind of pod has a table from nodes to verdicts, and calls go to their verb at
once: 8 ms ([figures](figures/extender-load.json), `python -m tools extender-load`, at a load of 13). Garbage collections over all
exports, 0.3 to 0.5 s of CPU several times a minute, which found nothing to free, are gone: what survives a short one is set aside, and none
takes more than 4 ms. So 99 % of the calls of filter take 9.5 ms instead of 27 after the first ten seconds, those of bind 15 instead of 60.
What is left: a verdict about a node that has changed takes 0.12 ms, and each pod changes one; 500 nodes
that are all different and new cost 50 to 100 ms of CPU at a load of 10, which is what the first ten seconds consist of.

**A critical pod among 500.** Each round compared every candidate; now it compares the distinct amounts that candidates
request, of which there are few.

**A pod on a node.** Most pods have nothing of their own, so that a manager without a demand is not asked. The best set of
NUMA nodes is mostly a single one: those that all hints prefer alone are one mask, and only where there is none are larger sets
tried. The packed choice of CPUs skips units that are larger than what is missing, and orders the cores of a NUMA node when it
reaches it. What is left is about 430 calls for a pod of the recorded sequences, none of which takes more than a tenth: hints and
their merge a quarter, allocation a quarter, predicates a sixth (half of it the pod's requests, which are read once for each pod),
and the values that are made for each new state. The evidence holds what was compared anyway and is made within a microsecond:
to make it only when it is read gains nothing. In six of ten merges a node is preferred alone by all: it is taken without a list for
each resource. A pod or node without devices, ports or finished init containers is asked for them once. Python's garbage
collector takes no measurable share: without it the times are the same. The states of a node hardly recur, so that there is
nothing to remember either.

Counted in instructions (cachegrind), a pod of the recorded sequences, with its start and removal, now takes 493,000 instead of
541,000: 9 % less, and in turns 5 to 10 % less CPU time. A third of this is that the device manager is asked once for each pod
whether it has a demand, instead of twice for each container. Half is that what containers request is read once for each pod, in
fewer passes and into one cache instead of three. The rest are values that were made to be read once: sets of CPUs between two
operations, hints for the same few sets of NUMA nodes, results that were copied to add a field. What is left by inclusive time: the
demands of the pod 11 %, hints 16 %, their merge 11 %, allocation 25 %, predicates 12 %. No function takes more than 3 % of its
own. To make hints and merge in one pass where a single NUMA node serves all was not tried: the evidence lists every hint, so
hints are made in any case, and merging them there is 3 %.

**Compiled modules.** mypyc compiles modules without classes; the hints of CPUs and memory and the merge of all masks, a tenth of a
decision, became no faster than the measurement is exact (three pairs: 0.89, 1.05, 1.07). Classes of msgspec lose what makes them
values once they are compiled: they are mutable then and have no hash. A wheel with compiled modules would need other classes, and its
gain would be far below a factor of two, so there is none.

**Start-up.** `admit` takes 582 million instructions, `import msgspec, yaml, click` 297: 2.0 times (653, 2.2 times, before). A regular
expression costs 0.4 million to compile and a command uses few of those that its modules define, so most are compiled at their first use; a
dataclass costs 1.8 million or more, a struct 0.1, so values are structs; types of the schema are described when a document has them; json,
pathlib and what they import come only with text to write and paths to list. What is left is spread over 200 modules: 0.35 million to
find and load each, a struct 0.1 and an enumeration or named tuple 0.6 million. To leave out more of them means to import the engine in parts.

**Files: the pods of a cluster.** A List that is decoded as a whole takes ten times the memory of its text. Now its items are
decoded one at a time, in C: a key that is given twice is found by its colon, which the decoded value lacks. That a pod has no
schema faults is found in C, too, by types compiled from the schema's tables (8 instead of 30 us for a live pod); only what does
not pass is checked field by field. Pods that differ in name, node, token and status share their spec: it is decoded, checked,
completed with defaults and stored by the API server once, and each pod gets the shared one with its own node and token. So do the
decisions of `admit`, which judges them as new pods without a node: what a node derives from a spec is derived once for all of
them, where each pod was a new object to it. Python's garbage collector took a seventh of the time, because it went through the growing
list of pods again and again; while manifests are read and pods admitted, it now runs after 1,000,000 new objects. In pairs of
processes that took turns, `requests` of 100,000 pods takes 0.74 of the CPU time it took, `admit` 0.73, and both a fifth less memory (1,003
and 818 MiB); with tokens and reported resources, as pods of real clusters have them, 0.92 and 0.73 (10,000 pods, load 5). `fleet`
needs half of that, because it makes no object of each pod and does not check its metadata and status. What is left of `requests`,
by CPU time: decoding JSON a fifth, finding pods that are alike and checking metadata and status a seventh, decoding these a tenth,
validation of names, labels and annotations an eighth, the report a fifth. Of `admit`, which takes 1.4 times as long, a quarter are the
decisions and a fifteenth the text, with a sentence for each of 99,890 refusals. Memory is the text and what is kept of each pod: 4 kB.

**Files: pods that already run in a fleet.** Each was decided by `step` on a state of all pods of its node, so that the
time grew with the square of a node's pods. A pod that the node has room for holds the same whether it is admitted or recovered,
unless it has init containers, which have ended; so it shares decisions as a new one does: half the time at 20 pods a node.

**Files: a fleet from YAML.** Reading 7,064 pods and 1,213 nodes is a twentieth of the run, because equal documents are parsed once.
The report discovered the CPU topology of each node again, a ninth of the run; it does no more. The rest is the simulation: 126
kinds of pods are ranked on 1,213 nodes, which are in 4 groups at first and in most of 1,213 at the end, because the nodes only fill
up: 232,000 looks at groups are needed where 482,000 looks at nodes were. Earlier, outdated bounds were skipped: 5 % fewer
instructions. Tables of decisions instead of one for each state have not made runs slower: k8s-sims takes 0.3 % fewer instructions with
them, 100,000 pods on 10,000 nodes 0.97 and 10,000 pods 0.95 to 0.97 of the CPU time (in turns, at a load of 5 to 17). What is
left: ranking a third, of which the looks are less than half; the decisions of nodes a sixth, half of it alignment for states that
are new; reading an eighth, imports a tenth.

**Lint on nodes.** A fifth of the run asked the nodes about each pod; now they are asked once about pods that differ in names, labels,
images and environment only. The same pods share all rules if the first has no violation, and documents that differ in texts at the ends
of lines are parsed once: 10,000 Deployments take 1.5 to 1.6 times less CPU time in pairs than before, two of five parts of it by the
parser. The containers and settings of templates that differ in images only are validated once. What is left of a document, by profile:
decoding, defaults and validation half, what the API server adds a tenth, parts of the text and their values a tenth, the inventory
and the input of the rules a fifth. Findings are still made for each document, so files full of them gain less.

**Advice on thresholds.** Most checks of the eviction manager change nothing and are counted instead of played; the same
run was simulated three times for each threshold. What is left are imports, three fifths, and the stats of all pods for each eviction.
A machine of the catalogue is read alone: all of them took 7 ms, and importlib.resources imported what reads archives.

**Counterfactuals.** Two fifths of `explain` beside 300 pods replayed them on the node with another setting, eleven times. Settings of
the resource managers change nothing that the other handlers decide by, so only the managers are asked again, and pods that no
manager is asked about share one hint: half the time of the replays. What is left is a sixth of the run for placing the pods with
exclusive CPUs, which the order of the pods decides, a tenth for trying each pod's removal, and imports, a quarter: the page that
`--html` writes, with its hashes and compression, is imported only for that option.

**Agent: memory.** 45 of 46 MiB are there once the modules are imported; docstrings are 2 MiB, and malloc's settings change
nothing: of Python's 29 MiB 0.6 are free. Joined to a cluster with containers it takes 69 MiB, 10 less than with an HTTP library for
the API server: gRPC's library is 11 MiB and about 5 MiB of heap, protobuf 2 MiB, the modules of a cluster's node 4 MiB.
`PYTHONOPTIMIZE=2` would leave out docstrings, and assertions with them. gRPC is loaded only with a CRI endpoint, or when somebody
connects to the PodResources socket.

**Agent: 110 pods at once.** A decision applies up to 20 pods of a list and takes some milliseconds. With one pod a decision, it takes
0.6 ms on average, but the state is written five times as often: the whole takes twice the time. The sum of all pods' requests was
a third of the decisions; the requests of each pod are now derived once. Joined to a cluster, 110 pods with containers take 5.1 s of
its CPU time where they took 8.0: connections to the API server are kept, the fields of statuses are looked up once, and the
write of a status is planned once. The kubelet takes 5.0 s; containerd and its shims 12 s under either.
"""


def page(figures: dict[str, Any], paired: dict[str, Any] | None = None) -> str:
    """The page for the figures that pytest-benchmark wrote, and those of a paired run."""
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
    return f"{HEAD}{_conditions(figures)}{base}\n\n" + "\n".join([*lines, *_fleet_lines()]) + f"\n{FINDINGS}"


def _fleet_lines() -> list[str]:
    """A table of the runs that take minutes, of which there are files of figures."""
    million, sweep = (json.loads(path.read_text("utf-8")) for path in (MILLION, SWEEP))
    runs = f"16 runs of a sweep, each {sweep['podsOfEachRun']:,} pods on {sweep['nodes']:,} nodes"
    rows = [
        ("Fleets (`python -m tools bench-fleet million`)", "took", "target"),
        ("---", "---", "---"),
        (
            f"{million['pods']:,} pods on {million['nodes']:,} nodes",
            f"{million['cpuSeconds']:.0f} s of CPU, {million['rssMiB']} MiB",
            "120 s of CPU, 400 MiB",
        ),
        (f"{runs}, one process", f"{sweep['oneProcessWallSeconds']:.0f} s", ""),
    ]
    for run in sweep["engines"]:
        report = "equal report" if run["isEqual"] else "another report"
        took = f"{run['wallSeconds']:.0f} s, {run['ofLinear']:.2f} of linear, {report}"
        name = f"The same on {sweep['cpus']} CPUs, engine {run['engine']}"
        rows.append((name, took, "0.9 of linear, byte-equal"))
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
    PAGE.write_text(page(result, paired), "utf-8")
    print(f"{PAGE.relative_to(ROOT)} written")
