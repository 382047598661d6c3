"""`nodewright fleet minimise`: the fewest nodes that hold a workload."""

from collections.abc import Sequence

import click
from msgspec.structs import replace

from nodewright.cli.app import NO, YES
from nodewright.cli.fleet_options import FleetQuestion, fleet_question_of_nodes
from nodewright.cli.fleet_runs import Telling, heeding, pods_of, with_amounts
from nodewright.cli.options import output as output_option
from nodewright.fleet import SCORES, Options, run
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.fleet.sweeps import fewest_document, fewest_text
from nodewright.sim.fleet.bound import bound_of, peaks
from nodewright.sim.fleet.minimise import BrokenOffError, fewest
from nodewright.sim.fleet.room import suits
from nodewright.sim.fleet.values import Fate
from nodewright.world.fleet.packing import packing_bound

_WELL = (Fate.RUNNING, Fate.ENDED)


@click.command("minimise")
@fleet_question_of_nodes
@click.option("--exact", is_flag=True, help="Look for a sharper bound by HiGHS (extra: exact).")
@click.option("--most", default=1000, show_default=True, help="How many nodes of a kind are tried.")
@click.option(
    "--scores",
    type=click.Choice(list(SCORES)),
    default="most-allocated",
    show_default=True,
    help="What the scheduler likes in a node.",
)
@output_option("json", "yaml")
def minimise(question: FleetQuestion, *, exact: bool, most: int, scores: str, output: str | None) -> int:
    """Find the fewest nodes that hold a workload.

    Each is like one of --nodes; they take every pod of --pods as soon as it arrives. Every number is tried by running the fleet. The bound below tells how far that may be from the least;
    if both are the same, it is proved. Ctrl-C ends the search, and the fewest that were found until then are told.
    Exit code 3 if no number of nodes will do, or none was found until then.
    """
    fleet = question.load()
    kinds = _kinds(fleet.nodes)
    telling = Telling()
    # Nodes have other names here: what each of --nodes has for itself goes anywhere.
    pods = tuple(replace(one, only_on="") if one.only_on else one for one in pods_of(fleet, telling))
    bound = _bound(kinds, pods, exact=exact)
    options = Options(scores=scores, budgets=fleet.budgets)

    def missed(nodes: Sequence[FleetNode]) -> int:
        result = run(nodes, pods, options, watch=telling.watch)
        if not result.complete:
            raise BrokenOffError
        # One that made way and came again later was not held all the while.
        return sum(
            one.fate not in _WELL or one.placed_s > one.arrived_s or one.stays > 1 for one in result.pods
        )

    with heeding(telling):
        found = fewest(kinds, missed, bound=bound, most=0 if telling.hopeless else most)
    if output is not None:
        document = fewest_document(found, kinds, exact=exact)
        click.echo((as_json if output == "json" else as_yaml)(document), nl=False)
    else:
        click.echo(fewest_text(found, kinds, exact=exact, most=most), nl=False)
    return YES if found.counts else NO


def _kinds(nodes: Sequence[FleetNode]) -> tuple[FleetNode, ...]:
    """One node of each kind: those that differ in what is theirs alone are of one kind."""
    found: dict[object, FleetNode] = {}
    for node in nodes:
        labels = frozenset(item for item in node.labels.items() if item[0] != "kubernetes.io/hostname")
        found.setdefault((id(node.profile), labels, node.taints), node)
    return tuple(found.values())


def _bound(kinds: Sequence[FleetNode], pods: Sequence[FleetPod], *, exact: bool) -> int:
    amounts = [has for _, has in with_amounts(kinds)]
    found = 0
    for demands in peaks(pods):
        found = max(found, bound_of(demands, amounts))
        if exact:
            allowed = [[suits(kind, one.pod) for one in demands] for kind in kinds]
            asks, counts = [one.asks for one in demands], [one.count for one in demands]
            found = max(found, packing_bound(asks, counts, amounts, allowed))
    return found
