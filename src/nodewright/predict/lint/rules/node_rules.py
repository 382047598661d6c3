"""Rules about pods on the nodes that are given: what every kubelet would say, before a controller asks it for ever."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.pod_admission import predicate_result
from nodewright.engine.node.restart.initial_node import next_start_refusals
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.changes import Amount, AmountsRewritten, CPULimitDropped, RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.kubernetes.objects import Pod, untolerated
from nodewright.model.kubernetes.resource_names import CPU, is_extended, is_huge_page
from nodewright.model.reasons.cpu import CPUsNotFree, KubeletCrashes, KubeletHangs, NotWholeCores
from nodewright.model.reasons.devices import DeviceUnlisted
from nodewright.model.reasons.memory import MemoryTypeMissing
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason, kubelet_fatal_error
from nodewright.model.reasons.topology import TopologyReason
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    LintNode,
    PodSubject,
    Severity,
    SubjectContainer,
    SuggestedEdit,
    lint_rule,
)

SUGGESTION_BUDGET = 300
"""Decisions for the search for a smallest change."""


class EmptyNodeVerdict(NamedTuple):
    """The verdict of an empty node on a pod."""

    node: LintNode
    shortages: tuple[InsufficientResource, ...]
    """The shortages that the scheduler sees; empty: it may bind the pod there."""
    step: Step


@lru_cache(maxsize=4)  # several rules check the same pod in a row
def _on_nodes(pod: PodSubject, context: LintContext) -> tuple[EmptyNodeVerdict, ...]:
    """The verdicts of the eligible nodes on the pod."""
    verdicts = []
    for node in context.nodes:
        short = _short_of(node, pod.pod)
        if short is not None:
            shortages = short if pod.is_scheduled else ()
            verdicts.append(EmptyNodeVerdict(node, shortages, step(node.state, PodAdded(pod.pod))))
    return tuple(verdicts)


def _short_of(node: LintNode, pod: Pod) -> tuple[InsufficientResource, ...] | None:
    """The shortages of an empty node; None: selectors, tolerations or devices exclude the node."""
    view = node.state.config.view
    if untolerated(view.taints, pod.spec.tolerations, ("NoSchedule",)):
        return None
    if any(is_extended(name) and name not in view.allocatable for name in pod_requests(pod)):
        return None  # Its devices are unknown; the scheduler binds the pod to nodes with such devices.
    verdict = predicate_result(node.state, pod, node.state.held).verdict
    because = () if isinstance(verdict, Granted) else verdict.because
    short = tuple(reason for reason in because if isinstance(reason, InsufficientResource))
    return short if len(short) == len(because) else None


def _refused_everywhere(pod: PodSubject, context: LintContext) -> tuple[EmptyNodeVerdict, ...]:
    """The nodes that the scheduler may choose, if every one of them rejects the pod."""
    chosen = tuple(node for node in _on_nodes(pod, context) if not node.shortages)
    if all(verdict.step.decision is Decision.REFUSED for verdict in chosen):
        return chosen
    return ()


def _first_reason(everywhere: tuple[EmptyNodeVerdict, ...]) -> Reason | None:
    return everywhere[0].step.because[0] if everywhere else None


@lint_rule("NW201", Severity.ERROR, PodSubject)
def _odd_cpus(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A fraction of a core where only whole cores are allocated.

    Finding: {nodes}: {containers} is no multiple of {perCore} CPUs, and full-pcpus-only allocates only whole cores
    (SMTAlignmentError); {consequence}

    With the option `full-pcpus-only` the CPU manager refuses exclusive CPUs that are not whole cores. The scheduler
    does not know about cores: it binds the pod again and again to a node that rejects it. A ReplicaSet then creates
    new pods without end; thousands of failed pods have brought clusters down. The rule needs nodes (`--node`),
    which determine the threads per core and the option.

    Remedy: Request whole cores, or a fraction of a CPU if no exclusive CPUs are needed.

    ```diff epyc-7742-2s-nps1
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 3, memory: 1Gi}
    -          limits: {cpu: 3, memory: 1Gi}
    +          requests: {cpu: 4, memory: 1Gi}
    +          limits: {cpu: 4, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    cpuManagerPolicyOptions: {full-pcpus-only: "true"}
    reservedSystemCPUs: 0-1,128-129
    ```
    """
    everywhere = _refused_everywhere(pod, context)
    reason = _first_reason(everywhere)
    if not isinstance(reason, NotWholeCores):
        return
    per_core = reason.cpus_per_core
    odd = [part for part in pod.defaulted_containers if _cpus(part) % per_core]
    edits = [
        SuggestedEdit(f"{part.resources_path}.{side}[{CPU}]", str(-(-_cpus(part) // per_core) * per_core))
        for part in odd
        for side in ("requests", "limits")
        if pod.written_value(f"{part.resources_path}.{side}", CPU) is not None
    ]
    facts = {
        **_facts(pod, everywhere),
        "containers": ", ".join(f"{part.container.name} ({_cpus(part)})" for part in odd),
        "perCore": per_core,
    }
    path = f"{odd[0].resources_path}" if odd else f"{pod.prefix}spec"
    yield FieldViolation(path=path, facts=facts, edits=tuple(edits))


def _cpus(part: SubjectContainer) -> int:
    amount = part.container.resources.requests.get(CPU)
    return 0 if amount is None or amount.milli_value() % 1000 else amount.value()


@lint_rule("NW202", Severity.ERROR, PodSubject)
def _not_aligned(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Requests that no given node can align.

    Finding: {nodes}: no NUMA nodes satisfy all requests even on an empty node (TopologyAffinityError);
    {consequence}{changes}

    Under the policies `restricted` and `single-numa-node` the topology manager refuses requests that do not fit on
    NUMA nodes that all managers prefer. If an empty node cannot satisfy them, no node can; but the scheduler only
    considers sums and keeps binding pods there. The changes in the message were tried.

    Remedy: Request less, split it over more pods, or use nodes of another shape or policy.

    ```diff epyc-7742-2s-nps1
     apiVersion: apps/v1
     kind: StatefulSet
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 160, memory: 64Gi}
    -          limits: {cpu: 160, memory: 64Gi}
    +          requests: {cpu: 100, memory: 64Gi}
    +          limits: {cpu: 100, memory: 64Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    topologyManagerPolicy: single-numa-node
    reservedSystemCPUs: 0,128
    ```
    """
    everywhere = _refused_everywhere(pod, context)
    if isinstance(_first_reason(everywhere), TopologyReason):
        yield _with_changes(pod, everywhere)


@lint_rule("NW203", Severity.ERROR, PodSubject)
def _storm(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Every given node rejects the pod, and the scheduler does not know.

    Finding: {nodes}: {sent}the kubelet refuses the pod each time: {reason}; {consequence}{changes}

    The kubelet's own decisions (exclusive CPUs, memory and devices on NUMA nodes, sysctls, features) are not part
    of the scheduler's sums. A refusal on an empty node repeats on every one. If a controller owns the pod, this is
    a replica storm: failed pods accumulate without end.

    Remedy: Apply a change from the message, or use nodes with another configuration.

    ```diff vm-4
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
    -      securityContext:
    -        sysctls:
    -        - {name: net.core.somaxconn, value: "1024"}
           containers:
           - name: app
             image: example.com/app
             resources: {}
    ```
    """
    everywhere = _refused_everywhere(pod, context)
    reason = _first_reason(everywhere)
    if reason is None or isinstance(reason, NotWholeCores | TopologyReason) or _ends_kubelet(reason):
        return
    yield _with_changes(pod, everywhere)


def _with_changes(pod: PodSubject, everywhere: tuple[EmptyNodeVerdict, ...]) -> FieldViolation:
    """The refusal with the changes that get the pod admitted, the first of them as an edit."""
    changes = _smallest(pod, everywhere[0])
    facts = {**_facts(pod, everywhere), "changes": changes}
    requests = (change.change for change in changes if isinstance(change.change, RequestsChanged))
    edits = tuple(
        edit for amount in next(requests, RequestsChanged(amounts=())).amounts for edit in _edits(pod, amount)
    )
    return FieldViolation(path=f"{pod.prefix}spec", facts=facts, edits=edits)


def _edits(pod: PodSubject, amount: Amount) -> Iterator[SuggestedEdit]:
    """The request with another amount, and the limit where it was the same."""
    name = amount.resource
    now = Quantity.of_milli(amount.now) if name == CPU else Quantity.of(amount.now, QuantityFormat.BINARY_SI)
    for part in pod.defaulted_containers:
        if part.container.name == amount.container:
            resources = part.container.resources
            together = resources.limits.get(name) == resources.requests.get(name)
            for side in ("requests", "limits") if together else ("requests",):
                if pod.written_value(f"{part.resources_path}.{side}", name) is not None:
                    yield SuggestedEdit(f"{part.resources_path}.{side}[{name}]", now.canonical())


@lint_rule("NW204", Severity.ERROR, PodSubject)
def _fits_nowhere(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The pod fits on none of the given nodes.

    Finding: {nodes}: too large for each of them even when empty; on {node}: {short}

    Allocatable is less than the machine's capacity: reservations, eviction thresholds and huge pages are
    subtracted. A larger pod stays Pending for ever. Nodes that the pod's node selector, affinity or tolerations
    exclude are not counted, nor those without information about the requested devices.

    Remedy: Request less, or add a node of a larger shape with another `--node`.

    ```diff vm-4
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 500m, memory: 16Gi}
    +      requests: {cpu: 500m, memory: 15Gi}
    ```
    """
    verdicts = _on_nodes(pod, context)
    if not verdicts or not all(verdict.shortages for verdict in verdicts):
        return
    nearest = min(verdicts, key=lambda verdict: (len(verdict.shortages), verdict.node.name))
    facts = {
        "kind": pod.kind,
        "nodes": _names(verdicts),
        "node": nearest.node.name,
        "short": nearest.shortages,
    }
    yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


@lint_rule("NW205", Severity.WARNING, PodSubject)
def _refused_somewhere(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Some of the given nodes reject the pod.

    Finding: {nodes}: the kubelet refuses the pod although the scheduler may bind it there: {reason}; {good} would
    admit it

    The nodes differ in facts that only their kubelets check. The scheduler may choose any of them, so the pod fails
    now and then, and its controller creates another one that may fail again.

    Remedy: Add a node selector or affinity for the nodes that admit the pod.

    ```diff epyc-7742-2s-nps1 epyc-7742-2s-l3numa
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 12, memory: 1Gi}
    -          limits: {cpu: 12, memory: 1Gi}
    +          requests: {cpu: 4, memory: 1Gi}
    +          limits: {cpu: 4, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    topologyManagerPolicy: single-numa-node
    topologyManagerPolicyOptions: {max-allowable-numa-nodes: "32"}
    reservedSystemCPUs: 0-3,128-131
    ```
    """
    chosen = [verdict for verdict in _on_nodes(pod, context) if not verdict.shortages]
    bad = [verdict for verdict in chosen if verdict.step.decision is Decision.REFUSED]
    if bad and len(bad) < len(chosen) and pod.is_scheduled:
        good = [verdict for verdict in chosen if verdict.step.decision is not Decision.REFUSED]
        facts = {**_facts(pod, tuple(bad)), "good": _names(good)}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


@lint_rule("NW206", Severity.ERROR, PodSubject)
def _ends_kubelet_rule(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The pod makes the kubelet crash or hang.

    Finding: {nodes}: {reason}

    Known defects of the kubelet: the static memory policy crashes on a huge page size that the machine's NUMA nodes
    do not list, before any check would refuse the pod; the distribution of CPUs over NUMA nodes can loop for ever
    where free CPUs do not form whole groups. Static pods, and pods that name their node, bypass the scheduler,
    which would keep them away.

    Remedy: Request only what the machine lists, or omit the option or policy on such machines.

    ```diff vm-4
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
       annotations: {kubernetes.io/config.source: file}
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
    -      limits: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
    +      requests: {cpu: 1, memory: 1Gi}
    +      limits: {cpu: 1, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    memoryManagerPolicy: Static
    topologyManagerPolicy: restricted
    reservedSystemCPUs: "0"
    reservedMemory:
    - numaNode: 0
      limits: {memory: 100Mi}
    ```
    """
    for node in _on_nodes(pod, context):
        if not node.shortages and node.step.because and _ends_kubelet(node.step.because[0]):
            yield FieldViolation(path=f"{pod.prefix}spec", facts=_facts(pod, (node,)))
            return


def _ends_kubelet(reason: Reason) -> bool:
    return isinstance(reason, KubeletHangs | KubeletCrashes | MemoryTypeMissing | DeviceUnlisted)


@lint_rule("NW207", Severity.INFO, PodSubject)
def _parts_of_cpus(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """More than one CPU, but not a whole number.

    Finding: container {container} requests {cpus} CPUs: on {nodes} only whole numbers get exclusive CPUs

    The static CPU policy allocates exclusive CPUs to Guaranteed containers that request a whole number; 2000m is
    whole, 1500m is not. The container shares its CPUs with all others, which may be intended.

    Remedy: Request a whole number if the container needs exclusive CPUs.

    ```diff epyc-7742-2s-nps1
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 1500m, memory: 1Gi}
    -          limits: {cpu: 1500m, memory: 1Gi}
    +          requests: {cpu: 2, memory: 1Gi}
    +          limits: {cpu: 2, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    reservedSystemCPUs: 0-1
    ```
    """
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    static = [node.name for node in context.nodes if node.pins_cpus]
    if not static:
        return
    for part in pod.defaulted_containers:
        amount = part.container.resources.requests.get(CPU)
        if amount is None or amount.milli_value() < 1000 or not amount.milli_value() % 1000:
            continue
        rounded_up = str(-(-amount.milli_value() // 1000))
        edits = tuple(
            SuggestedEdit(f"{part.resources_path}.{side}[{CPU}]", rounded_up)
            for side in ("requests", "limits")
            if pod.written_value(f"{part.resources_path}.{side}", CPU) is not None
        )
        facts = {"container": part.container.name, "cpus": str(amount), "nodes": ", ".join(static)}
        yield FieldViolation(path=part.resources_path, facts=facts, edits=edits)


@lint_rule("NW208", Severity.WARNING, PodSubject)
def _pages_of_init(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Huge pages that only init containers request, in the pod scope.

    Finding: {nodes}: {resource} of init container {container} is ignored when the pod's NUMA nodes are chosen

    With `topologyManagerScope: pod` the memory manager counts only the kinds of memory that app containers request.
    Huge pages of an init container alone are not part of the hint, and may then be missing on the pod's NUMA nodes.

    Remedy: Request the same kind in an app container, or use the scope `container`.

    ```diff
     apiVersion: nodewright.dev/v1alpha1
     kind: NodeProfile
     metadata: {name: worker}
     spec:
       rootFsCapacity: 100000000000
       machineInfo:
         num_cores: 4
         num_sockets: 1
         memory_capacity: 17179869184
         hugepages: [{page_size: 2048, num_pages: 512}]
         topology:
         - node_id: 0
           memory: 17179869184
           hugepages: [{page_size: 2048, num_pages: 512}]
           distances: [10]
           cores:
           - {core_id: 0, thread_ids: [0]}
           - {core_id: 1, thread_ids: [1]}
           - {core_id: 2, thread_ids: [2]}
           - {core_id: 3, thread_ids: [3]}
       kubeletConfiguration:
         cpuManagerPolicy: static
         memoryManagerPolicy: Static
         topologyManagerPolicy: restricted
         topologyManagerScope: pod
         reservedSystemCPUs: "0"
         reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
     ---
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       initContainers:
       - name: load
         image: example.com/load
         resources:
           requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
           limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 1, memory: 1Gi}
    -      limits: {cpu: 1, memory: 1Gi}
    +      requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
    +      limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
    ```
    """
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    app_requests = {name for container in pod.pod.spec.containers for name in container.resources.requests}
    nodes = [
        node.name
        for node in context.nodes
        if node.state.config.parts.kubelet.topology_manager_scope == "pod"
        and node.pins_memory
        and node.state.config.parts.kubelet.topology_manager_policy != "none"
    ]
    for part in pod.defaulted_containers if nodes else ():
        for name in part.container.resources.requests:
            if is_huge_page(name) and name not in app_requests and part.role != "container":
                facts = {"container": part.container.name, "resource": name, "nodes": ", ".join(nodes)}
                yield FieldViolation(path=part.resources_path, facts=facts)


@lint_rule("NW209", Severity.ERROR, PodSubject)
def _allocated_twice(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """CPUs that are allocated twice.

    Finding: {node}: the kubelet allocates CPUs {cpus}, which are not free: it assumes equal cores

    The kubelet divides the number of CPUs by the number of cores and uses the quotient as the threads of every
    core. On hybrid processors, and where siblings are offline, it then allocates whole cores with a thread that is
    already allocated: two containers share a CPU that each has exclusively.

    Remedy: Use no static CPU policy on such machines, or reserve the small cores and the siblings of offline CPUs.

    ```diff laptop-i7-1370p
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 2, memory: 1Gi}
    -          limits: {cpu: 2, memory: 1Gi}
    +          requests: {cpu: 1, memory: 1Gi}
    +          limits: {cpu: 1, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    reservedSystemCPUs: "0"
    ```
    """
    for node in _on_nodes(pod, context):
        conflicts = [reason for reason in node.step.because if isinstance(reason, CPUsNotFree)]
        if conflicts:
            facts = {"node": node.node.name, "cpus": str(conflicts[0].cpus)}
            yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)
            return


@lint_rule("NW212", Severity.WARNING, PodSubject)
def _last_start(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A pod after which the kubelet does not start again.

    Finding: {node}: the kubelet admits the pod and does not start again: {error}

    With `strict-cpu-reservation` pods may hold all CPUs but the reserved ones. No kubelet starts while containers hold
    CPUs and none are left to share, so the next restart, reboot or upgrade of the node fails.

    Remedy: Request fewer CPUs, so that some are left to share.

    ```diff uma-4c
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 3, memory: 1Gi}
    -          limits: {cpu: 3, memory: 1Gi}
    +          requests: {cpu: 2, memory: 1Gi}
    +          limits: {cpu: 2, memory: 1Gi}
    ```

    ```yaml kubelet
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    cpuManagerPolicy: static
    cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}
    reservedSystemCPUs: "0"
    ```
    """
    for node in _on_nodes(pod, context):
        refusals = next_start_refusals(node.step.state) if node.step.decision is Decision.ADMITTED else ()
        if refusals and not any(isinstance(reason, CPUsNotFree) for reason in node.step.because):
            facts = {"node": node.node.name, "error": kubelet_fatal_error(refusals[0])}
            yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)
            return


def _facts(pod: PodSubject, judged_by: tuple[EmptyNodeVerdict, ...]) -> dict[str, object]:
    return {
        "kind": pod.kind,
        "nodes": _names(judged_by),
        "reason": judged_by[0].step.because[0],
        "scheduled": pod.is_scheduled,
    }


def _names(verdicts: Iterable[EmptyNodeVerdict]) -> str:
    return ", ".join(verdict.node.name for verdict in verdicts)


def _smallest(pod: PodSubject, verdict: EmptyNodeVerdict) -> tuple[Suggestion, ...]:
    """The smallest changes of the pod with which the node admits it; changes of the node are not searched."""
    changes = suggested_changes(verdict.node.state, pod.pod, verdict.step, budget=SUGGESTION_BUDGET)
    return tuple(
        suggestion for suggestion in changes.suggestions if isinstance(suggestion.change, _POD_CHANGES)
    )


_POD_CHANGES = RequestsChanged | AmountsRewritten | CPULimitDropped
