"""Rules about pods that the scheduler binds to none of the nodes that are given, whatever their kubelets would decide."""

from collections.abc import Iterator

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.reasons.reason import sentence
from nodewright.predict.lint.lint_model import FieldViolation, LintContext, PodSubject, Severity, lint_rule
from nodewright.predict.verdict import obstacles_on


@lint_rule("NW210", Severity.WARNING, PodSubject)
def _unknown_resources(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A resource that no node has.

    Finding: {resource} of container {container}: none of the nodes has it, so nothing else is judged there

    The scheduler binds a pod only to nodes that have all its extended resources. A kubelet ignores those that it
    does not know, so it would admit the pod and run it without its devices.

    Remedy: Name a node with the resource in --node, or correct its name.

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
    -          requests: {cpu: 2, memory: 1Gi, nvidia.com/gpus: 1}
    -          limits: {cpu: 2, memory: 1Gi, nvidia.com/gpus: 1}
    +          requests: {cpu: 2, memory: 1Gi}
    +          limits: {cpu: 2, memory: 1Gi}
    ```
    """
    if not context.nodes:
        return
    for part in pod.defaulted_containers:
        for name in part.container.resources.requests:
            if is_extended(name) and not any(
                name in node.state.config.view.allocatable for node in context.nodes
            ):
                facts = {"resource": name, "container": part.container.name}
                yield FieldViolation(path=part.resources_path, facts=facts)


@lint_rule("NW211", Severity.WARNING, PodSubject)
def _unschedulable(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A pod that the scheduler binds to none of the nodes.

    Finding: the scheduler binds the pod to none of the nodes: {obstacles}

    Taints that the pod does not tolerate, a cordon, or labels that its node selector and required node affinity do not
    find: the kubelet of such a node would admit the pod, but the pod stays Pending.

    Remedy: Tolerate the taints, correct the selector, or name a node for such pods in --node.

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
    -      nodeSelector: {kubernetes.io/os: windows}
    +      nodeSelector: {kubernetes.io/os: linux}
           containers:
           - name: app
             image: example.com/app
             resources:
               requests: {cpu: 2, memory: 1Gi}
               limits: {cpu: 2, memory: 1Gi}
    ```
    """
    if not (pod.is_scheduled and context.nodes):
        return
    texts: dict[str, None] = {}
    for node in context.nodes:
        view, spec = node.state.config.view, pod.pod.spec
        mismatch = affinity_mismatch(spec, view.name, view.labels)
        repelling = [each.why for each in obstacles_on(node.state.config, pod.pod) if each.plugin in _BY_NODE]
        reasons = [*repelling, *([] if mismatch is None else [sentence(mismatch)])]
        if not reasons:
            return
        texts[f"{node.name}: {', '.join(reasons)}"] = None
    yield FieldViolation(path=f"{pod.prefix}spec", facts={"obstacles": "; ".join(texts)})


_BY_NODE = ("NodeUnschedulable", "TaintToleration")
