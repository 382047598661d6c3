"""`nodewright rehearse`: would the kubelet start with this configuration on these state files, and who dies?"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from nodewright.ask import DEFAULT_NAME, Node, parts_of, release_of
from nodewright.checkpoints import StateFiles, files_of, stored_in, written_in
from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.inputs import warn
from nodewright.core.arrival import identified, stored
from nodewright.core.cpu.state import CPUState
from nodewright.core.memory.state import MemoryState
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.reasons import Reason
from nodewright.model.state_reasons import StateFile
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.config import NodeParts
from nodewright.node.rehearsal import Rehearsal, Running, not_configured, rehearse
from nodewright.node.step import running
from nodewright.render.captured import remark_sentence
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.rehearsal import Rehearsed, rehearsal_document, rehearsal_names, rehearsal_text
from nodewright.sim.restart import refused_configuration
from nodewright.world.captured.pods import NodePods, admitted, read_pods
from nodewright.world.errors import InputError
from nodewright.world.kubelet_root import CONFIG_FILE, KubeletRoot, RootReading, read_kubelet_root
from nodewright.world.nodes import find_profile

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("rehearse")
@options.node
@click.option(
    "--config",
    "config",
    type=_FILE,
    metavar="FILE",
    help="The KubeletConfiguration to start with. Default: config.yaml of --kubelet-root, else the node's own.",
)
@click.option(
    "--kubelet-root",
    type=_DIRECTORY,
    metavar="DIR",
    help="/var/lib/kubelet or a copy: the state files. Default: what the node's pods hold.",
)
@click.option(
    "--pods",
    type=_FILE,
    metavar="FILE",
    help="The pods that run: `kubectl get pods -A -o json`. Default: those of the node's profile.",
)
@options.strict
@options.max_document_size
@options.output("json", "yaml", "wide", "name")
def command(
    node: str | None,
    config: Path | None,
    kubelet_root: Path | None,
    pods: Path | None,
    *,
    strict: bool,
    output: str | None,
) -> int:
    """Say how a restart of the kubelet would go: whether it starts, what to do if not, and which pods are lost.

    Nothing is written. With -o name the pods alone that do not survive. Exit code 0 if it starts and keeps all
    pods, 3 if not.
    """
    asked = _Asked(find_profile(node), node or "this machine", config, kubelet_root, pods)
    parts, warnings = asked.parts()
    warn(warnings, strict=strict)
    found, files = (
        (not_configured(parts.because), StateFiles(contents={}))
        if isinstance(parts, Refused)
        else asked.rehearsed(parts.value)
    )
    about = Rehearsed(
        node=asked.profile.metadata.name or DEFAULT_NAME,
        rules=release_of(asked.profile.spec.kubernetes_version, asked.source),
        paths={file: files.path(file) for file in StateFile},
        warnings=warnings,
    )
    click.echo(_text(found, about, output), nl=False)
    return YES if found.is_well else NO


def _text(found: Rehearsal, about: Rehearsed, output: str | None) -> str:
    if output == "name":
        return rehearsal_names(found)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(rehearsal_document(found, about))
    return rehearsal_text(found, about, wide=output == "wide")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line names."""

    profile: NodeProfile
    source: str
    config: Path | None
    root: Path | None
    pods: Path | None

    def parts(self) -> tuple[Verdict[NodeParts], tuple[str, ...]]:
        """The node under its next kubelet, and what is odd about it; refused: the configuration is none."""
        release_of(self.profile.spec.kubernetes_version, self.source)
        config = self._config()
        try:
            parts, warnings = parts_of(
                self.profile, kubelet_config=str(config) if config else None, source=self.source
            )
        except InputError as error:
            return refused_configuration(error), ()
        return Granted(parts), warnings

    def rehearsed(self, parts: NodeParts) -> tuple[Rehearsal, StateFiles]:
        """How it would start, and the files on which it would."""
        there = self._there()
        if self.root is None:
            _tell(there)
            state = self._node(there).state
            files = files_of(state)
            return _rehearsed(parts, files, tuple(state.pods.values())), files
        root = read_kubelet_root(self.root, RootReading(config=self._config()))
        files = _files_in(root, there)
        inside = _let_in(there, root)
        _tell(inside)
        pods = tuple(with_defaults(identified(stored(pod))) for pod in inside.pods)
        return _rehearsed(parts, files, pods, tuple(_broken(root)), are_known=bool(there.pods)), files

    def _there(self) -> NodePods:
        """The pods that run."""
        if self.pods is not None:
            return read_pods(self.pods, self.profile.metadata.name)
        profile = self.profile
        known = (with_defaults(identified(stored(pod))) for pod in profile.spec.pods if not pod.has_ended)
        return NodePods(node=profile.metadata.name, pods=tuple(known))

    def _node(self, there: NodePods) -> Node:
        """The node as it is, under the configuration that it has."""
        profile = self.profile
        if self.pods is not None:
            spec = msgspec.structs.replace(profile.spec, pods=there.pods, allocations=None)
            profile = msgspec.structs.replace(profile, spec=spec)
        return Node.of(profile, source=self.source)

    def _config(self) -> Path | None:
        """The file with the next kubelet's configuration; None: it stands in the profile."""
        if self.config is None and self.root is not None and (self.root / CONFIG_FILE).is_file():
            return self.root / CONFIG_FILE
        return self.config


def _rehearsed(
    parts: NodeParts,
    files: StateFiles,
    pods: tuple[Pod, ...],
    broken: tuple[Reason, ...] = (),
    *,
    are_known: bool = True,
) -> Rehearsal:
    what = Running(pods=pods, containers=running(pods), held=written_in(files, parts), are_known=are_known)
    return rehearse(parts, msgspec.structs.replace(stored_in(files, parts), resources=broken), what)


def _tell(there: NodePods) -> None:
    for remark in there.remarks:
        click.echo(remark_sentence(remark), err=True)


def _files_in(root: KubeletRoot, there: NodePods) -> StateFiles:
    """The managers' files of the directory."""
    found = {StateFile.CPU: root.cpu, StateFile.MEMORY: root.memory, StateFile.DEVICES: root.devices}
    contents = {file: one.content for file, one in found.items() if one is not None}
    return StateFiles(contents=contents, root=root.directory, running=there.running)


def _let_in(there: NodePods, root: KubeletRoot) -> NodePods:
    """Those of the pods that the kubelet had let in, with the resources that it gave them."""
    if root.allocated is None or isinstance(root.allocated.read, Refused):
        return there
    holders = [uid for one in (root.cpu, root.memory) if one for uid in _holders(one.read)]
    return admitted(there, root.allocated.read.value, holders)


def _holders(read: Verdict[CPUState] | Verdict[MemoryState]) -> Iterator[str]:
    if isinstance(read, Granted):
        yield from read.value.assignments


def _broken(root: KubeletRoot) -> Iterator[Reason]:
    """What speaks against the files with what pods were allocated."""
    for one in (root.allocated, root.actuated):
        if one is not None and isinstance(one.read, Refused):
            yield one.read.because[0]
