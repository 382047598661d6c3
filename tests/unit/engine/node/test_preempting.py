from nodewright.engine.core.preemption.greedy import victims_for
from nodewright.engine.node.actions import CountPreemption, KillPod, RecordPodEvent, StatusChange
from nodewright.engine.node.pod_admission import preemption_actions
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.verdict import Granted
from nodewright.testing.objects import a_pod, a_static_pod


def test_each_victim_gets_its_event_and_its_kill_which_counts_only_if_it_succeeds() -> None:
    shortages = [
        InsufficientResource(resource=name, requested=amount, used=0, capacity=0)
        for name, amount in (("cpu", 400), ("memory", 1))
    ]
    active = [a_pod("a", {"cpu": "200m", "memory": 1}), a_pod("b", {"cpu": "200m"})]
    victims = victims_for(a_static_pod(), active, shortages)
    assert isinstance(victims, Granted)
    first, kill, *rest = preemption_actions(victims.value)
    assert first == RecordPodEvent(
        pod_uid="a",
        type="Warning",
        reason="Preempting",
        message="Preempted in order to admit critical pod",
    )
    assert kill == KillPod(
        pod_uid="a",
        status=StatusChange(
            phase="Failed",
            reason="Preempting",
            message="Preempted in order to admit critical pod",
            disruption_target="Pod was preempted by Kubelet to accommodate a critical pod.",
        ),
        grace_period_s=None,
        if_done=(CountPreemption(signal="cpu"),),
    )
    assert [type(action) for action in rest] == [RecordPodEvent, KillPod]
