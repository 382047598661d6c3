"""Reading the pods, the node and the custom policies of a command, and printing its warnings and report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli.options import NO_POLICY_OPTIONS, NodeQuery, NothingJudgedError, PolicyOptions
from nodewright.cli.workload_input import CLAIMS_KEY, print_input_notes, print_warnings, read_workloads
from nodewright.documents.formats.manifests import AUTOSCALER_KIND
from nodewright.documents.formats.workloads import LoadedWorkloads, Workload, ignored_field_warnings
from nodewright.documents.output.terminal import NO, UNSCHEDULABLE, YES, print_message, print_text
from nodewright.documents.profiles.node_profiles import find_profile, with_release
from nodewright.engine.core.cpu.cpu_policy import CPUPicker
from nodewright.engine.core.predicates.scheduler_filters import unknown_resources
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.step import Decision
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.node_profile import NodeProfile, PolicyNames
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, EPHEMERAL_STORAGE, is_extended
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.predict.admit.admission_report import AdmissionEntry, ArrivingPods, arriving_pods
from nodewright.predict.node import AdmitResult, Node
from nodewright.predict.node_report.report_parts import policy_notices
from nodewright.predict.verdict import SchedulerAnswer, Verdict, later_sentences, scheduler_answer, unaligned

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster


class LoadedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and the node of a query."""

    workloads: Sequence[Workload]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    profile: NodeProfile
    node: Node
    warnings: tuple[str, ...]
    """With notes on pods that are left out or changed."""
    read: LoadedWorkloads
    """What was read from the manifests."""

    def created_pods(self) -> tuple[Workload, ...]:
        """The workloads with pods; prints on stderr why the others have none."""
        for workload in self.workloads:
            if workload.refusal is not None:
                print_message(f"{workload.pod.full_name}: {workload.refusal.sentence()}")
        return tuple(workload for workload in self.workloads if workload.refusal is None)


def load_query(
    query: NodeQuery, workloads: LoadedWorkloads | None = None, *, as_arrivals: bool = True
) -> LoadedQuery:
    """The pods and the node of the query; prints warnings on stderr.

    ``workloads``: those of the manifests, if they have been read.
    ``as_arrivals``: the pods arrive at the node; otherwise they are those in the manifests.

    Errors: InputError with all faults of all files, or with the warnings if the query is strict; HostError if
        the node is this machine, which cannot be read.
    """
    loaded = workloads or read_workloads(query.manifests, query.namespace)
    if not as_arrivals:
        skipped = {kind: count for kind, count in loaded.skipped.items() if kind != AUTOSCALER_KIND}
        loaded = replace(loaded, skipped=skipped)
    profile, policies = with_policies(_profile(query), query.policies)
    source = query.node or query.shape or "this machine"
    node = Node.from_profile(profile, kubelet_config=query.kubelet_config, policies=policies, source=source)
    ignored = ignored_field_warnings(loaded.workloads, node.config.gates, node.config.release.rules_of)
    warnings = (*loaded.warnings, *node.warnings, *ignored)
    node = replace(node, claims=known_claims(loaded))
    may_be_empty = not query.manifests.are_named or (not as_arrivals and bool(loaded.recommendations))
    if query.manifests.are_named:
        print_input_notes(loaded, warnings, strict=query.strict, may_be_empty=may_be_empty)
    else:
        print_warnings(warnings, strict=query.strict)
    arriving = ArrivingPods(workloads=loaded.workloads)
    if as_arrivals:
        arriving = arriving_pods(loaded.workloads, node, all_replicas=query.all_replicas)
    notes = (*arriving.notes, *_assumptions(query, profile, node, loaded.workloads))
    for note in notes:
        print_message(f"note: {note}")
    # A DaemonSet that creates no pod for the node is judged by that.
    is_empty = not (arriving.workloads or may_be_empty)
    if is_empty and all(workload.is_stored for workload in loaded.workloads):
        raise NothingJudgedError([Fault(rule="nothing here is judged: no pod arrives at the node")])
    return LoadedQuery(
        workloads=arriving.workloads,
        skipped=loaded.skipped,
        profile=profile,
        node=node,
        warnings=(*warnings, *notes),
        read=loaded,
    )


def _assumptions(
    query: NodeQuery, profile: NodeProfile, node: Node, workloads: Sequence[Workload]
) -> Iterator[str]:
    """What is assumed of a node that is described in a few words, where it decides about these pods."""
    spec = profile.spec
    is_known = spec.kubelet_configuration or query.kubelet_config or query.policies != NO_POLICY_OPTIONS
    is_unaligned = not (is_known or spec.not_judged or len(spec.machine_info.topology) < 2)
    if spec.root_fs_capacity and not is_unaligned:
        return
    pods = [with_defaults(workload.pod) for workload in workloads]
    if not spec.root_fs_capacity and any(EPHEMERAL_STORAGE in scheduler_requests(pod) for pod in pods):
        yield "the node has no ephemeral-storage: spec.rootFsCapacity of its NodeProfile is 0 or not set"
    if is_unaligned and any(_is_aligned(pod, node) for pod in pods):
        yield (
            "topology manager policy none and CPU manager policy none, the kubelet's defaults, as no configuration is "
            "given (--kubelet-config FILE): no pod is aligned to NUMA nodes; `fleet` assumes best-effort and static"
        )


def _is_aligned(pod: Pod, node: Node) -> bool:
    """Whether resource managers other than those of policy none would place the pod."""
    requests = scheduler_requests(pod)
    has_devices = any(is_extended(name) and name in node.config.view.allocatable for name in requests)
    return has_devices or (qos_class(pod) is QOSClass.GUARANTEED and requests.get(CPU, 0) >= 1000)


def _profile(query: NodeQuery) -> NodeProfile:
    """The node of the query.

    Errors: click.UsageError for options that exclude each other; InputError as of `find_profile`.
    """
    if query.shape is None and query.memory_bytes is None and not query.devices:
        return find_profile(query.node, release=query.release, pods=query.pods)
    from nodewright.documents.profiles.machine_shapes import shape_profile, with_devices  # noqa: PLC0415 - start-up time

    if query.shape is None:
        if query.memory_bytes is not None:
            raise click.UsageError("--memory requires --shape")
        profile = find_profile(query.node, release=query.release, pods=query.pods)
    elif query.node is not None:
        raise click.UsageError("--shape and --node exclude each other")
    elif query.pods is not None:
        raise click.UsageError("--shape and --pods exclude each other: a shape is a node without pods")
    else:
        profile = shape_profile(query.shape, query.memory_bytes)
        profile = profile if query.release is None else with_release(profile, query.release)
    return with_devices(profile, query.devices)


def with_policies(
    profile: NodeProfile, choice: PolicyOptions
) -> tuple[NodeProfile, tuple[CustomPolicy, ...]]:
    """The profile with the names of the chosen policies, and these policies.

    Errors: InputError for files that define no policy, and for unknown names.
    """
    names, policies = profile.spec.policies, list[CustomPolicy]()
    if names == PolicyNames() and choice == NO_POLICY_OPTIONS:
        return profile, ()
    from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy  # noqa: PLC0415 - start-up time
    from nodewright.engine.core.topology.custom import TopologyPolicy  # noqa: PLC0415 - start-up time
    from nodewright.predict.policy_registry import load_policies  # noqa: PLC0415 - start-up time

    known = load_policies(choice.files)
    if choice.topology is not None:
        names = replace(names, topology=choice.topology)
    if choice.cpu_picker is not None:
        names = replace(names, cpu_picker=choice.cpu_picker)
    if names.topology:
        source = "--topology-policy" if choice.topology else "spec.policies.topology"
        policies.append(known.find(TopologyPolicy, names.topology, source=source))
    if names.cpu_picker:
        source = "--cpu-picker" if choice.cpu_picker else "spec.policies.cpuPicker"
        policies.append(known.find(CPUPicker, names.cpu_picker, source=source))
    if choice.eviction is not None:
        names = replace(names, eviction=choice.eviction)
    if names.eviction:
        source = "--policy" if choice.eviction else "spec.policies.eviction"
        policies.append(known.find(EvictionPolicy, names.eviction, source=source))
    return replace(profile, spec=replace(profile.spec, policies=names)), tuple(policies)


def print_report(text: str, output: str | None, config: NodeConfig) -> None:
    """Prints a report, preceded by the custom policies in use; JSON and YAML reports contain these themselves."""
    note = policy_notices(config)
    if note and output in (None, "wide"):
        print_text(f"{note}\n")
    elif note and output == "name":
        print_text(note, to_stderr=True)
    print_text(text)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """The exit code of a command about what becomes of pods."""
    others = {*verdicts} - {Verdict.ADMITTED}
    return (UNSCHEDULABLE if others == {Verdict.UNSCHEDULABLE} else NO) if others else YES


def known_claims(loaded: LoadedWorkloads) -> "ClaimCluster | None":
    """What is known of Dynamic Resource Allocation: from the files, and from the cluster if the node is of one."""
    of_cluster = click.get_current_context().meta.get(CLAIMS_KEY)
    claims: ClaimCluster | None = of_cluster(loaded) if of_cluster else loaded.claims
    return claims


def asked_scheduler(node: Node, pod: Pod, workload: Workload, query: NodeQuery) -> SchedulerAnswer:
    """What the scheduler makes of the pod of the workload and the node; nothing with --kubelet-only."""
    if query.kubelet_only:
        return SchedulerAnswer(claims=node.claims)
    return scheduler_answer(node.config, node.claims, pod, workload.volumes)


def after_scheduling(node: Node, before: Node, scheduler: SchedulerAnswer, decision: Decision | None) -> Node:
    """The node after the kubelet's decision, with the claims of the pod allocated if it is admitted.

    ``before``: the node when the pod arrived, which it does not reach if there are obstacles.
    """
    if scheduler.obstacles:
        return before
    return replace(node, claims=scheduler.claims if decision is Decision.ADMITTED else before.claims)


def admitted_entry(
    node: Node, workload: Workload, query: NodeQuery
) -> tuple[AdmissionEntry, AdmitResult | None]:
    """The report entry for the pod of a workload, and the node's answer; None if the pod does not get to the node."""
    origin = "" if workload.kind == "Pod" else f"{workload.kind} {workload.name}"
    if workload.refusal is not None:
        entry = AdmissionEntry(
            pod=workload.pod,
            decision=Decision.REFUSED,
            because=(workload.refusal,),
            victims=None,
            origin=origin,
            applied=workload.applied,
            source=workload.source,
        )
        return entry, None
    answer = node.admit(workload.pod)
    scheduler = asked_scheduler(node, answer.pod, workload, query)
    decision = answer.decision
    if decision is Decision.ADMITTED and workload.is_verdict_open:
        decision = Decision.UNDECIDED
    entry = AdmissionEntry(
        pod=answer.pod,
        decision=decision,
        because=(*answer.because, *workload.not_judged),
        victims=answer.victims,
        placement=None if scheduler.obstacles else answer.placement,
        origin=origin,
        applied=workload.applied,
        unknown_resources=unknown_resources(answer.pod, node.config.view),
        scheduler=scheduler.obstacles,
        devices=scheduler.devices if answer.admitted else (),
        unaligned=unaligned(node.config, node.claims, scheduler, answer.pod, answer.placement),
        source=workload.source,
        later=() if scheduler.obstacles else later_sentences(answer.state_when_decided, answer.pod.uid),
    )
    if scheduler.obstacles:
        return entry, None
    return entry, replace(answer, node=after_scheduling(answer.node, node, scheduler, answer.decision))
