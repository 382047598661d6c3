"""A topology policy of ours: a pod says for itself how it is to be aligned.

The kubelet's policy holds for all pods of a node. With `pod-wish` a pod's annotations choose: a pod that
measures its memory latency can insist on one NUMA node beside pods that would rather run anywhere than not at all.
"""

from nodewright.core.topology.own import POLICIES, SCOPES, Manner, Unfit, topology_choice
from nodewright.model.objects import Pod

POLICY = "nodewright.dev/topology-policy"
SCOPE = "nodewright.dev/topology-scope"


@topology_choice("pod-wish")
def pod_wish(pod: Pod, usual: Manner) -> Manner | Unfit:
    """The pod's annotations choose the kubelet's policy and scope that it is judged by."""
    wishes = pod.metadata.annotations
    policy, scope = wishes.get(POLICY, usual.policy), wishes.get(SCOPE, usual.scope)
    for key, wish, known in ((POLICY, policy, POLICIES), (SCOPE, scope, SCOPES)):
        if wish not in known:
            return Unfit(f'annotation {key} says "{wish}", not one of {", ".join(known)}')
    wished = ", ".join(f"{key}={wishes[key]}" for key in (POLICY, SCOPE) if key in wishes)
    return Manner(policy, scope, said=f"the pod is annotated with {wished}") if wished else usual
