"""`nodewright fleet generate`: a fleet and a workload out of a seed, as CSV."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from nodewright.cli.app import YES
from nodewright.sim.fleet.synthetic import NODE_HEADER, POD_HEADER, Draw, node_rows, pod_rows

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("generate")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same files.")
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1), help="How many nodes.")
@click.option("--pods", default=10_000, show_default=True, type=click.IntRange(0), help="How many pods.")
@click.option(
    "--load",
    default=0.8,
    show_default=True,
    type=click.FloatRange(0, 5, min_open=True),
    help="The share of all CPUs that pods ask for on average, once as many have come as go.",
)
@click.option("--nodes-file", type=_FILE, required=True, metavar="FILE", help="Where the nodes go.")
@click.option("--pods-file", type=_FILE, required=True, metavar="FILE", help="Where the pods go.")
def generate(*, seed: int, nodes: int, pods: int, load: float, nodes_file: Path, pods_file: Path) -> int:
    """Draw a fleet from a seed, as CSV.

    The tables are for `fleet --nodes FILE --pods FILE`.
    """
    draw = Draw(seed=seed, nodes=nodes, pods=pods, load=load)
    _write(nodes_file, NODE_HEADER, node_rows(draw))
    _write(pods_file, POD_HEADER, pod_rows(draw))
    return YES


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
