"""Several workers that share the nodes answer as one process, and without the one that has ended."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.support.small_nodes import a_numa_pod
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile, with_pods

from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.kubernetes.objects import Pod
from nodewright.scheduling.extender.extender_service import ApiBinder, ServiceOptions
from nodewright.scheduling.extender.scheduler_calls import SchedulerCalls, SingleProcess
from nodewright.scheduling.extender.shard_answers import ShardAnswers
from nodewright.scheduling.extender.shard_messages import (
    CountsAnswer,
    CountsShare,
    ReviewAnswer,
    ReviewShare,
    ShareAnswer,
    ShareFault,
    ShareRequest,
    framed,
)
from nodewright.scheduling.extender.sharded_calls import ShardedCalls
from nodewright.scheduling.extender.worker_link import WorkerLink, WorkerLostError, answer_requests
from nodewright.scheduling.verdicts.admit_answer import AdmitRequest
from nodewright.scheduling.verdicts.node_owners import NodeOwners
from nodewright.testing.objects import a_pod

WORKERS = 3
NAMES = tuple(f"node-{at}" for at in range(6))
PODS = [a_numa_pod(f"p{at}", {"cpu": 1000 * (at + 1), "memory": 16}) for at in range(4)]


class ShardedBench:
    """One process and three workers over the same API server and exports."""

    def __init__(self, **options: Any) -> None:
        self.api, self.clock = BindingCluster(HostClock()), HostClock()
        self.single = ExtenderBench(self.api, self.clock, **options)
        self.workers = [ExtenderBench(self.api, self.clock, **options) for _ in range(WORKERS)]
        self.owners, self.lost = NodeOwners(WORKERS), set[int]()
        for bench in (self.single, *self.workers):
            bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
        answers = [ShardAnswers(worker.service).answer for worker in self.workers]

        async def ask(owner: int, request: ShareRequest) -> ShareAnswer:
            if owner in self.lost:
                raise WorkerLostError("killed")
            # As it arrives on the other side.
            content = framed(request)[4:]
            sent: ShareRequest = msgspec.msgpack.decode(content, type=ShareRequest)
            answered: ShareAnswer = msgspec.msgpack.decode(
                framed(await answers[owner](sent))[4:], type=ShareAnswer
            )
            return answered

        self.sharded = ShardedCalls(self.owners, ask, ApiBinder(self.api), ServiceOptions(**options))
        asyncio.run(self.sharded.update_readiness())
        self.calls: tuple[SchedulerCalls, SchedulerCalls] = SingleProcess(self.single.service), self.sharded

    def put(self, name: str, *pods: Pod) -> None:
        """A node that holds these pods, in both."""
        for bench in (self.single, self.workers[self.owners.owner(name)]):
            bench.put_export(name, with_pods(a_profile(), *pods))

    def both(self, call: Callable[[SchedulerCalls], Awaitable[Any]]) -> Any:
        """The answer, which is the same from both."""

        async def scenario() -> list[Any]:
            return [await call(calls) for calls in self.calls]

        alone, split = asyncio.run(scenario())
        assert alone == split
        return split

    def owned(self, *, by: int) -> str:
        """A node of this worker."""
        return next(name for name in NAMES if self.owners.owner(name) == by)


nodes = st.lists(st.lists(st.sampled_from(PODS[:3]), unique_by=lambda pod: pod.uid), min_size=6, max_size=6)


@given(nodes, st.integers(0, 3), st.integers(0, 2))
def test_workers_answer_as_one_process(held: list[list[Pod]], size: int, reserved: int) -> None:
    bench = ShardedBench()
    for name, pods in zip(NAMES, held, strict=True):
        bench.put(name, *pods)
    pod = bench.api.create_free_pod("new", size + 1, priority=5)
    body = msgspec.json.encode({"Pod": pod, "NodeNames": [*NAMES, "unknown"]})
    bench.both(lambda calls: calls.filter(body))
    bench.both(lambda calls: calls.prioritize(body))
    victims = {
        name: {"Pods": [{"UID": each.uid} for each in pods]} for name, pods in zip(NAMES, held, strict=True)
    }
    preemption = msgspec.json.encode({"Pod": pod, "NodeNameToMetaVictims": victims})
    bench.both(lambda calls: calls.preempt(preemption))
    everything, some = AdmitRequest(pod=pod), AdmitRequest(pod=pod, nodes=NAMES[::2])
    bench.both(lambda calls: calls.admit(everything))
    bench.both(lambda calls: calls.admit(some))
    bench.both(lambda calls: calls.refusals(a_pod("large", f"{reserved + 2}/1Mi")))


def test_a_place_that_a_worker_has_reserved_is_taken() -> None:
    bench = ShardedBench()
    bench.put(NAMES[1])
    first, second = (bench.api.create_free_pod(name, 4) for name in ("first", "second"))
    binding = {
        "PodName": "first",
        "PodNamespace": "default",
        "PodUID": first["metadata"]["uid"],
        "Node": NAMES[1],
    }

    async def scenario() -> None:
        assert msgspec.json.decode(await bench.sharded.bind(msgspec.json.encode(binding))) == {"Error": ""}
        body = msgspec.json.encode({"Pod": second, "NodeNames": [NAMES[1]]})
        assert not msgspec.json.decode(await bench.sharded.filter(body))["NodeNames"]
        counts = await bench.sharded.counts()
        assert (counts.reservations, counts.nodes["exact"], counts.calls["bind answered"]) == (1, 1, 1)

    asyncio.run(scenario())


def lost_answers(*, fails_open: bool) -> tuple[Any, Any, str]:
    """Filter, victims and bind with a node of a worker that has ended, and one of another."""
    bench = ShardedBench(fails_open=fails_open)
    lost, kept = bench.owned(by=0), bench.owned(by=1)
    for name in (lost, kept):
        bench.put(name)
    bench.lost.add(0)
    pod = bench.api.create_free_pod("new", 2)

    async def scenario() -> tuple[Any, Any, str]:
        body = msgspec.json.encode({"Pod": pod, "NodeNames": [lost, kept]})
        filtered = msgspec.json.decode(await bench.sharded.filter(body))
        scores = msgspec.json.decode(await bench.sharded.prioritize(body))
        assert [each["Score"] for each in scores] == [0, 10]
        victims = {lost: {"Pods": [{"UID": "uid-x"}]}}
        preemption = msgspec.json.encode({"Pod": pod, "NodeNameToMetaVictims": victims})
        chosen = msgspec.json.decode(await bench.sharded.preempt(preemption))["NodeNameToMetaVictims"]
        call = {"PodName": "new", "PodNamespace": "default", "PodUID": "uid-new", "Node": lost}
        bound = msgspec.json.decode(await bench.sharded.bind(msgspec.json.encode(call)))
        assert await bench.sharded.refusals(a_pod("large", "99/1Mi")) is None
        reasons = []
        for lost_workers in ((0,), range(WORKERS)):
            bench.lost.update(lost_workers)
            await bench.sharded.update_readiness()
            reasons.append(bool(bench.sharded.not_ready_reason))
        assert reasons == [False, True]
        return len(filtered["NodeNames"] or ()), list(chosen), str(bound["Error"])

    return asyncio.run(scenario())


def test_nodes_of_an_ended_worker_are_refused_if_the_extender_fails_closed() -> None:
    passed, chosen, error = lost_answers(fails_open=False)
    assert (passed, chosen) == (1, [])
    assert "worker 0" in error


def test_nodes_of_an_ended_worker_pass_if_the_extender_fails_open() -> None:
    passed, chosen, error = lost_answers(fails_open=True)
    assert (passed, len(chosen), error) == (2, 1, "")


def test_requests_over_a_connection_are_answered_in_any_order_until_it_ends() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        first_may_end = asyncio.Event()

        async def answer(request: ShareRequest) -> ShareAnswer:
            if isinstance(request, CountsShare):
                await first_may_end.wait()
                return ShareFault("slow")
            return ReviewAnswer({"too large": 2})

        serving = asyncio.create_task(answer_requests(reader, writer, answer))
        link = WorkerLink(*await asyncio.open_unix_connection(sock=ours))
        running = asyncio.create_task(link.run())
        slow = asyncio.create_task(link.ask(CountsShare()))
        assert await link.ask(ReviewShare(b"")) == ReviewAnswer({"too large": 2})
        first_may_end.set()
        assert await slow == ShareFault("slow")
        first_may_end.clear()
        waiting = asyncio.create_task(link.ask(CountsShare()))
        await link.ask(ReviewShare(b""))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        writer.close()
        await running
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], WorkerLostError)
        assert not isinstance(slow.result(), CountsAnswer)

    asyncio.run(scenario())
