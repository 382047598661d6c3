"""`nodewright fleet capacity`: how many more pods of a kind fit."""

import click

from nodewright.ask import load_pods
from nodewright.cli.app import NO, YES
from nodewright.cli.fleet_options import FleetQuestion, fleet_question_of_nodes
from nodewright.cli.fleet_runs import Telling, axes_of, played
from nodewright.cli.options import output as output_option
from nodewright.fleet import Options
from nodewright.model.objects import Pod
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.fleet.document import rooms_document
from nodewright.render.fleet.text import rooms_text
from nodewright.render.fleet.words import reason_text, seconds
from nodewright.sim.fleet.axes import Point, points
from nodewright.sim.fleet.room import ShapeRoom, rooms, total


@click.command("capacity")
@fleet_question_of_nodes
@click.option(
    "-f", "--filename", "wanted", required=True, metavar="FILE", help="The pod of which more are wanted."
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="FIELD=VALUE,VALUE",
    help="Count under each value of a KubeletConfiguration's field. Repeatable: all combinations.",
)
@output_option("json", "yaml")
def capacity(question: FleetQuestion, *, wanted: str, sweep: tuple[str, ...], output: str | None) -> int:
    """Count how many more pods of a kind fit.

    Each is put to the nodes, beside the pods that they have (--pods), until they refuse.

    BY AMOUNTS is what free amounts alone would hold; STRANDED what is there, yet not where it can be used.
    What the pod wants of other pods (spreading, affinity) is not looked at. Exit code 3 if none fits, or if Ctrl-C
    ended it before all was counted.
    """
    fleet = question.load()
    pods = load_pods(wanted, namespace=question.namespace)
    found: list[tuple[Point, Pod, tuple[ShapeRoom, ...]]] = []
    until_s: float | None = None
    base, telling = fleet.wish.furniture.configuration, Telling()
    options = Options(keeps=False, budgets=fleet.budgets)
    for point in points(axes_of(sweep)):
        result = played(fleet.configured(point.configuration(base)), options, telling)
        found += [(point, pod, rooms(result.nodes, pod)) for pod in pods]
        if not result.complete:
            until_s = result.ended_s
            break
    if output is not None:
        document = {
            "capacity": [
                {"pod": pod.full_name, "settings": dict(point.settings), **rooms_document(room)}
                for point, pod, room in found
            ],
            "complete": until_s is None,
        }
        click.echo((as_json if output == "json" else as_yaml)(document), nl=False)
    else:
        if until_s is not None:
            click.echo(f"broken off at {seconds(until_s)} of virtual time: the last is how many fit then")
        click.echo("\n".join(_text(*one) for one in found), nl=False)
    return YES if until_s is None and all(total(room).fits for _, _, room in found) else NO


def _text(point: Point, pod: Pod, room: tuple[ShapeRoom, ...]) -> str:
    whole = total(room)
    settings = f" with {point.name}" if point.settings else ""
    head = f"{pod.full_name}: {whole.fits:,} more fit{settings}\n"
    reason = next((one.room.because for one in room if one.room.stranded), whole.because)
    last = f"no more, for example: {reason_text(reason)}\n" if reason is not None else ""
    return head + rooms_text(room) + last
