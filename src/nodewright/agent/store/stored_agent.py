"""The node and the pods in the directory of an agent, for commands that compare them with what runs."""

import json
from pathlib import Path

from msgspec.structs import replace

from nodewright.agent.state.agent_state import PodStage
from nodewright.agent.store.store_files import HEADER, JOURNAL, PODS, read_pod_file
from nodewright.documents.files.regular_files import read_regular_file
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod


class AgentDirectory:
    """Fulfils the port `StoredAgent`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def profile(self) -> NodeProfile:
        """The node at the start of the journal, whose first line is a Scenario without its events.

        Errors: InputError.
        """
        path = self._root / JOURNAL
        head, _, _ = _content(path).partition(b"\n")
        try:
            node = json.loads(head + b"]}}")["spec"]["node"]
        except (KeyError, TypeError, *JSON_ERRORS) as error:
            rule = f"it is no journal of an agent: {error}"
            raise InputError([Fault(source=str(path), rule=rule)]) from None
        return profile_from_bytes(json.dumps(node).encode(), str(path))

    def pods(self) -> list[Pod]:
        """The stored pods, with their last phases.

        Errors: InputError.
        """
        files = sorted((self._root / PODS).glob("*.json"))
        records = [read_pod_file(_content(path), str(path)) for path in files]
        return [
            replace(
                record.pod, status=replace(record.status, phase=_phase(record.stage, record.status.phase))
            )
            for record in records
        ]


def agent_directory(root: Path | None) -> AgentDirectory | None:
    """The agent that a directory belongs to; None: no agent."""
    return None if root is None or not (root / HEADER).is_file() else AgentDirectory(root)


def _content(path: Path) -> bytes:
    """The content of a file of an agent's directory.

    Errors: InputError.
    """
    try:
        return read_regular_file(path)
    except OSError as error:
        raise InputError([Fault(source=str(path), rule=f"cannot be read: {error.strerror}")]) from None


def _phase(stage: PodStage, phase: str) -> str:
    return "Failed" if stage in (PodStage.REJECTED, PodStage.TERMINATED) and phase != "Succeeded" else phase
