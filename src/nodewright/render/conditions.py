"""What the conditions of a node mean for a pod that wants in: who keeps it away, and who does not."""

from typing import assert_never

from nodewright.core.eviction import Passage, UnderCondition


def scheduler_sentence(one: UnderCondition) -> str:
    """What a scheduler that honours taints does with the pod."""
    match one.scheduler:
        case Passage.TOLERATES:
            return "the scheduler may choose the node: the pod tolerates the taint"
        case Passage.NOT_SCHEDULED:
            return "no scheduler is asked: the pod is static, or the mirror of one"
        case Passage.NONE:
            return "the scheduler passes over the node: the pod does not tolerate the taint"
        case Passage.NO_CONDITION | Passage.CRITICAL | Passage.NOT_BEST_EFFORT:
            raise AssertionError(one.scheduler)
        case _:
            assert_never(one.scheduler)


def kubelet_sentence(one: UnderCondition) -> str:
    """What the kubelet does with the pod once it is there, were this the only condition."""
    match one.kubelet:
        case Passage.CRITICAL:
            return "the kubelet takes it: the pod is critical"
        case Passage.NOT_BEST_EFFORT:
            return "the kubelet takes it: the pod is not best effort"
        case Passage.TOLERATES:
            return "the kubelet takes it: the pod tolerates the taint"
        case Passage.NONE:
            return "the kubelet turns it away, whoever sent it"
        case Passage.NO_CONDITION | Passage.NOT_SCHEDULED:
            raise AssertionError(one.kubelet)
        case _:
            assert_never(one.kubelet)
