"""What a kubelet's directory says for a restart: its state files, the pods as it admitted them, and damaged records."""

from collections.abc import Iterator

from nodewright.documents.profiles.capture.node_pods import NodePods, admitted_pods
from nodewright.documents.profiles.kubelet_root import KubeletRoot
from nodewright.documents.profiles.state_files.checkpoints import StateFiles
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.state_files import StateFile
from nodewright.model.reasons.verdict import Granted, Refused, Verdict


def state_files_of(root: KubeletRoot, running: NodePods) -> StateFiles:
    """The managers' state files of the directory."""
    files = {StateFile.CPU: root.cpu, StateFile.MEMORY: root.memory, StateFile.DEVICES: root.devices}
    contents = {name: file.content for name, file in files.items() if file is not None}
    return StateFiles(contents=contents, root=root.directory, container_names=running.container_names)


def pods_as_admitted(running: NodePods, root: KubeletRoot) -> NodePods:
    """The pods that the kubelet had admitted, with their allocated resources."""
    if root.allocated is None or isinstance(root.allocated.verdict, Refused):
        return running
    holders = [uid for file in (root.cpu, root.memory) if file for uid in _holders(file.verdict)]
    return admitted_pods(running, root.allocated.verdict.value, holders)


def _holders(state: Verdict[CPUState] | Verdict[MemoryState]) -> Iterator[str]:
    if isinstance(state, Granted):
        yield from state.value.assignments


def allocation_conflicts(root: KubeletRoot) -> Iterator[Reason]:
    """Why the files with the pods' allocated and actuated resources are unusable."""
    for file in (root.allocated, root.actuated):
        if file is not None and isinstance(file.verdict, Refused):
            yield file.verdict.because[0]
