"""What the agent lends to BestEffort pods: from samples through the predictor to the node's loans, and how these come back."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.state.agent_state import LendingState, LoanReturn
from nodewright.agent.state.observations import ClassMemory, LentMemoryObserved, PodUsageSampled
from nodewright.engine.core.lending.node_loans import NodeSamples, node_reservations
from nodewright.engine.core.lending.predictors import Predictor, UsageSamples
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.events import ReservationsObserved
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount
from nodewright.model.values.custom_policy import CustomPolicyError

_STEP_BYTES = 16 << 20
"""Between two samples memory is called back in steps of this size: each is a line of the journal."""


def observe_usage(iteration: Iteration, observation: PodUsageSampled | LentMemoryObserved) -> None:
    """Lends by a sample of all pods, or calls memory back between two of them."""
    if isinstance(observation, PodUsageSampled):
        lend_by_sample(iteration, observation)
    else:
        lend_by_memory(iteration, observation.memory)


def lend_by_sample(iteration: Iteration, sample: PodUsageSampled) -> None:
    """Lends what the predictor leaves of the requests; after an error of the predictor nothing."""
    predictor = iteration.constants.predictor
    if predictor is None:
        return
    node, lending = iteration.node, iteration.lending
    cpu, memory = _samples(node, sample, CPU), _samples(node, sample, MEMORY)
    try:
        cpu_states, cpu_milli = _reserved(predictor, cpu, lending.cpu_predictor)
        memory_states, memory_bytes = _reserved(predictor, memory, lending.memory_predictor)
    except CustomPolicyError as error:
        iteration.record_event("", "PredictorFailed", str(error), warning=True)
        cpu_states, memory_states = {}, {}
        cpu_milli, memory_bytes = max(cpu.requested, cpu.used[0]), max(memory.requested, memory.used[0])
    iteration.lending = replace(
        lending,
        cpu_predictor=cpu_states,
        memory_predictor=memory_states,
        borrowed={
            uid: tuple(usage)
            for uid, usage in sample.pods.items()
            if uid in node.pods and is_borrower(node.pods[uid], node)
        },
    )
    event = ReservationsObserved(
        cpu_milli=cpu_milli,
        memory_bytes=max(memory_bytes, sample.memory.lenders_bytes),
        borrowed_bytes=sample.memory.borrowed_bytes,
    )
    _observe(iteration, event, sample.at_ns)


def lend_by_memory(iteration: Iteration, memory: ClassMemory) -> None:
    """Calls memory back that the pods that lend need before the next sample; lends no more."""
    loans = iteration.node.loans
    if loans is None:
        return
    needed = -(-memory.lenders_bytes // _STEP_BYTES) * _STEP_BYTES
    left = iteration.node.config.resources.allocatable[MEMORY].value() - loans.memory_bytes
    event = ReservationsObserved(memory_bytes=max(needed, left), borrowed_bytes=memory.borrowed_bytes)
    _observe(iteration, event, memory.at_ns)


def lend_less_for_new_pods(iteration: Iteration) -> None:
    """Calls back what pods request that were admitted just now: what they use is not known yet."""
    node, before = iteration.node, iteration.state_before.node
    loans = node.loans
    if loans is None or node.pods is before.pods:
        return
    added = [scheduler_usage(pod) for uid, pod in node.pods.items() if uid not in before.pods]
    cpu_milli, memory_bytes = (sum(usage.get(name, 0) for usage in added) for name in (CPU, MEMORY))
    if not cpu_milli and not memory_bytes:
        return
    allocatable = node.config.resources.allocatable
    borrowed = sum(used or 0 for _, used in iteration.lending.borrowed.values())
    event = ReservationsObserved(
        cpu_milli=allocatable[CPU].milli_value() - loans.cpu_milli + cpu_milli,
        memory_bytes=allocatable[MEMORY].value() - loans.memory_bytes + memory_bytes,
        borrowed_bytes=max(borrowed, loans.owed_bytes and loans.memory_bytes + loans.owed_bytes),
    )
    _observe(iteration, event, iteration.now.monotonic_ns)


def is_borrower(pod: Pod, node: NodeState) -> bool:
    """Whether a pod gets what others lend."""
    return qos_class(pod, node.config.requests.qos) is QOSClass.BEST_EFFORT


def _samples(node: NodeState, sample: PodUsageSampled, resource: str) -> NodeSamples:
    """The sample of the pods that lend. CPUs that a pod holds exclusively are never lent: they count as unknown."""
    is_memory, allocatable = resource == MEMORY, node.config.resources.allocatable[resource]
    capacity = allocatable.value() if is_memory else allocatable.milli_value()
    held, pods = node.held.cpu, dict[str, UsageSamples]()
    for uid, pod in node.pods.items():
        if is_borrower(pod, node):
            continue
        used = None
        if uid in sample.pods and (is_memory or not held.holds(uid)):
            used = sample.pods[uid].memory_bytes if is_memory else sample.pods[uid].cpu_milli
        pods[uid] = UsageSamples(
            times_ns=(sample.at_ns,),
            usage=(used,),
            request=scheduler_usage(pod).get(resource, 0),
            capacity=capacity,
            is_memory=is_memory,
        )
    return NodeSamples(
        times_ns=(sample.at_ns,),
        pods=tuple(pods.values()),
        names=tuple(pods),
        capacity=capacity,
        is_memory=is_memory,
    )


def _reserved(
    predictor: Predictor, node: NodeSamples, states: Mapping[str, Any]
) -> tuple[Mapping[str, Any], int]:
    states, (reserved,) = node_reservations(predictor, node, states)
    # A predictor of the whole node reserves no more than is requested, and pods may use more than that.
    return states, max(reserved, node.used[0])


def _observe(iteration: Iteration, event: ReservationsObserved, at_ns: int) -> None:
    """Decides on the loans, and notes when memory is called back and when it has come back."""
    iteration.step(event)
    loans, lending = iteration.node.loans, iteration.lending
    if loans is None:
        return
    pending = lending.last_return
    if pending is not None and pending.duration_ns is not None:
        pending = None
    if loans.owed_bytes:
        since_ns, most = (pending.since_ns, pending.amount_bytes) if pending is not None else (at_ns, 0)
        called_back = LoanReturn(amount_bytes=max(most, loans.owed_bytes), since_ns=since_ns)
        iteration.lending = _with_return(lending, called_back, is_new=pending is None)
    elif pending is not None:
        returned = replace(pending, duration_ns=at_ns - pending.since_ns)
        iteration.lending = _with_return(lending, returned)
        amount, duration_ms = (
            readable_amount(MEMORY, pending.amount_bytes),
            (at_ns - pending.since_ns) // 10**6,
        )
        iteration.record_event("", "LoanReturned", f"{amount} of lent memory came back in {duration_ms} ms")


def _with_return(lending: LendingState, last: LoanReturn, *, is_new: bool = False) -> LendingState:
    return replace(lending, last_return=last, returns_total=lending.returns_total + is_new)
