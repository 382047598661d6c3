"""What `--help` shows besides click's own: two examples, and only the options that most people need."""

import copy
import re
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise

import click

from nodewright.documents.output.terminal import print_text

ALL = "--help-all"
_FURTHER = """
--allow-empty --as --as-group --cpu-picker --device --journal --max-document-size --memory --policies
--request-timeout --selector --serve --strict --template-path --topology-policy --with-secrets
--cloud-provider --node-ip --provider-id --register-node --register-with-taints --bootstrap-kubeconfig
--manifest-url --manifest-url-header --device-plugin-dir --cgroup-root --socket-group --pod-resources-socket
--kubelet-defects --eviction-policy --grant --budget --max-machine-cpus --max-replicas --max-unpacked-size
--workers --engine --shards --parquet --gpu-annotation --retry --all-namespaces --policy --until
--filesystems --after --signal --duration --kubelet-client-certificate --kubelet-client-key --cert-dir
--kubelet-certificate-authority --kubelet-token-file --poll-period --export-client-certificate
--export-client-key --export-token-file --export-ca-file --export-base --health-listen
"""
FURTHER = frozenset(_FURTHER.split())
"""Options that only `--help-all` shows; the others have one sentence each without it."""
EXAMPLES_OF_HELP = 2


def help_examples(path: str) -> list[tuple[str, str]]:
    """The examples of a command, such as `nodewright fleet run`: what each does, and its command line."""
    text = resources.files("nodewright.cli").joinpath("help_examples.txt").read_text("utf-8")
    return [
        (comment, line)
        for comment, line in pairwise(text.splitlines())
        if comment.startswith("#") and f"{path} " in f"{line} "
    ]


def with_help_parts(command: click.Command, path: str, words: Sequence[str]) -> click.Command:
    """A copy of the command that ends its help with examples, and shows further options if the words have `--help-all`."""
    shown = copy.copy(command)
    examples = help_examples(path)[:EXAMPLES_OF_HELP]
    shown.epilog = "\b\nExamples:\n" + "\n".join(f"  {text}" for example in examples for text in example)
    shown.params = list(command.params)
    further = [option for option in command.params if FURTHER.intersection(option.opts)]
    if further and ALL not in words:
        shown.params = [_shortened(parameter, hidden=parameter in further) for parameter in command.params]
    shown.params.append(_help_all_option(hidden=not further))
    if isinstance(shown, click.Group) and isinstance(command, click.Group):
        shown.commands = {
            name: with_help_parts(subcommand, f"{path} {name}", words)
            for name, subcommand in command.commands.items()
        }
    return shown


def _shortened(parameter: click.Parameter, *, hidden: bool) -> click.Parameter:
    """The parameter with the first sentence of its help."""
    if not isinstance(parameter, click.Option):
        return parameter
    option = copy.copy(parameter)
    option.hidden = option.hidden or hidden
    option.help = re.split(r"(?<=\.) (?=[A-Z])", option.help or "")[0]
    return option


def _help_all_option(*, hidden: bool) -> click.Option:
    text = "Show this message with all options and exit."
    return click.Option([ALL], is_flag=True, is_eager=True, expose_value=False, hidden=hidden, callback=_print_help, help=text)  # fmt: skip


def _print_help(context: click.Context, _option: click.Parameter, value: object) -> None:
    if value:
        print_text(f"{context.get_help()}\n")
        context.exit()
