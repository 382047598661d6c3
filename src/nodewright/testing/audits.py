"""What an agent without a machine leaves behind, as the evidence of an audit."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from nodewright.agent.values import Stage
from nodewright.audit.groups import groups_to_read, names_to_read
from nodewright.audit.values import Evidence, GroupsTold, StateTold
from nodewright.checkpoints import files_of, stored_in
from nodewright.core.cgroups.names import Parents, pod_uid_of
from nodewright.core.requests import QOSClass
from nodewright.model.objects import Pod
from nodewright.model.verdict import Granted, Verdict
from nodewright.node.cgroups import cgroup_rules, cgroup_tree
from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.testing.agents import AgentBench
from nodewright.world.podresources.messages import allocatable_message, allocatable_of, pod_message, pod_of

T = TypeVar("T")


def evidence_of(bench: AgentBench) -> Evidence:
    """What state files, PodResources, cgroup files and the API say of the bench's node: by way of their bytes."""
    mind = bench.loop.mind
    config, records = mind.node.config, mind.pods.values()
    there = [one for one in records if one.stage in (Stage.ACTIVE, Stage.WAITING, Stage.ENDING)]
    pods = tuple(replace(one.pod, status=one.status) for one in there)
    stored = stored_in(files_of(mind.node), config.parts)
    devices = _value(stored.devices)
    return Evidence(
        config=config,
        state=StateTold(cpu=_value(stored.cpu), memory=_value(stored.memory), devices=devices.held),
        resources=tuple(pod_of(pod_message(pod_resources(mind.node, pod))) for pod in pods),
        allocatable=allocatable_of(allocatable_message(allocatable_resources(mind.node))),
        groups=_groups(bench, pods),
        pods=pods,
    )


def _groups(bench: AgentBench, pods: Iterable[Pod]) -> GroupsTold:
    """The groups as a runtime makes them, which the fake one does not."""
    mind = bench.loop.mind
    for record in mind.pods.values():
        for one in record.facts.containers if record.facts else ():
            bench.cgroups.ensure(one.cgroup, tuple(record.told.get(one.id, ())))
    rules = cgroup_rules(mind.node.config)
    asked = groups_to_read(mind.node.config, pods, rules)
    texts = {
        one.path: bench.cgroups.texts(one.path, names_to_read(one, rules.version)) for one in asked.groups
    }
    parents = Parents.below(cgroup_tree(mind.node.config).root)
    places = [path for one in QOSClass for path in bench.cgroups.below(parents.of(one).path(rules.driver))]
    uids = {uid for path in places if (uid := pod_uid_of(path, parents, rules.driver))}
    return GroupsTold(rules=rules, texts=texts, uids=frozenset(uids))


def _value(read: Verdict[T] | None) -> T:
    assert isinstance(read, Granted)
    return read.value
