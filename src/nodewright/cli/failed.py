"""`nodewright explain --pod FILE`: why was this pod refused?"""

from collections.abc import Iterator

import click

from nodewright.cli.opening import Opened
from nodewright.core.arrival import as_new
from nodewright.render.explain import Told
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Workload
from nodewright.world.statuses import proof_of


def failed(found: Opened, budget: int) -> Iterator[Told]:
    """What there is to tell of pods that have failed, each as if it came to the node now and alone.

    Errors: InputError for everything that is not a failed pod.
    """
    faults = [fault for one in found.workloads for fault in _faults(one)]
    if faults:
        raise InputError(faults)
    for one in found.workloads:
        then = one.pod.spec.node_name
        if then and then != found.node.name:
            text = f"{one.pod.full_name} was on node {then}, and the node described is {found.node.name}"
            click.echo(f"warning: {text}", err=True)
        yield Told(explained=found.node.explain(as_new(one.pod), budget=budget), proof=proof_of(one.pod))


def _faults(one: Workload) -> Iterator[Fault]:
    phase = one.pod.status.phase
    if one.kind != "Pod":
        rule = "is no pod that has failed; -f explains what would become of its pods"
        yield Fault(source=one.source, value=f"{one.kind} {one.name}", rule=rule)
    elif phase != "Failed":
        yield Fault(
            source=one.source,
            path="status.phase",
            value=phase,
            rule="must be Failed: only a pod that was refused or ended can be asked why; -f explains what would "
            "become of it",
        )
