"""`nodewright export`: serve what a node really holds, beside its kubelet."""

import asyncio
import sys

import click

from nodewright.model.errors import Fault, InputError
from nodewright.scheduling.exporter.export_options import ExportOptions, export_options


@click.command("export")
@export_options
def command(options: ExportOptions) -> int:
    """Serve what this node really holds, beside its kubelet, for schedulers.

    The export is a NodeExport at /v1/state: the machine, the kubelet's configuration and release, its pods and their
    CPUs, memory and devices. It reads the node again as soon as a state file of the kubelet changes. Nothing is written on the
    machine, except a self-signed certificate if none is given.
    """
    if sys.platform != "linux":
        raise InputError([Fault(rule="not Linux: a kubelet's node is exported on Linux only")])
    from nodewright.scheduling.exporter.exporter import print_once, run_export  # noqa: PLC0415 - needs the extra `agent`

    return asyncio.run(print_once(options) if options.once else run_export(options))
