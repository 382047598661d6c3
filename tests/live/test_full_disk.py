"""The real command where its files cannot be written, or are damaged: nothing starts that would be forgotten, nothing is overwritten."""

import itertools
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cluster.client.agent_client import AgentStatusError

pytestmark = pytest.mark.live

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: main, image: none, command: [sleep, "1000"]}}]
"""
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
evictionHard: {nodefs.available: 0%}
"""
"""Without eviction for the disk that the tests fill."""
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentCommand]:
    with private_cgroups() as cgroups:
        (tmp_path / "pods").mkdir()
        config = tmp_path / "kubelet.yaml"
        config.write_text(CONFIG)
        options = ("--workload-dir", str(tmp_path / "pods"), "--config", str(config))
        made = AgentCommand(tmp_path, cgroups.root, *options)
        try:
            yield made
        finally:
            made.stop()


def want(agent: AgentCommand, name: str) -> None:
    place = agent.folder / "pods" / f"{name}.yaml"
    place.with_suffix(".part").write_text(POD.format(name=name))
    place.with_suffix(".part").rename(place)


def phases(agent: AgentCommand) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in agent.pods()}


def waits_for(agent: AgentCommand, name: str) -> str:
    """Why the container of a pod does not run."""
    (pod,) = [pod for pod in agent.pods() if pod["metadata"]["name"] == name] or [{"status": {}}]
    statuses = pod["status"].get("containerStatuses") or [{}]
    waiting: dict[str, str] = statuses[0].get("state", {}).get("waiting", {})
    return waiting.get("reason", "")


def test_a_disk_that_takes_nothing_keeps_pods_waiting_and_the_agent_alive(agent: AgentCommand) -> None:
    agent.start()
    want(agent, "first")
    agent.wait_until(lambda: phases(agent) == {"first": "Running"})
    # Every file may have 0 bytes: no write of the agent succeeds, that of its messages neither.
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    want(agent, "second")
    agent.wait_until(lambda: waits_for(agent, "second") == "StateNotKept")
    assert phases(agent) == {"first": "Running", "second": "Pending"}
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    agent.wait_until(lambda: phases(agent) == {"first": "Running", "second": "Running"})


def test_a_pod_that_cannot_be_stored_is_not_reported_as_created(agent: AgentCommand) -> None:
    agent.start()
    agent.wait_until(agent.is_ready)
    pod = yaml.safe_load(POD.format(name="lost"))
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with pytest.raises(
        AgentStatusError, match=r'pods "lost" is not created: it cannot be stored: write .*: File too large'
    ):
        agent.client.post("api", "v1", "namespaces", "default", "pods", body=pod)
    agent.wait_until(lambda: phases(agent) == {})
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    # What is acknowledged outlives the agent, also one that is killed at once.
    agent.wait_until(lambda: _created(agent, pod))
    agent.kill()
    agent.start()
    agent.wait_until(lambda: phases(agent) == {"lost": "Running"})


def _created(agent: AgentCommand, pod: dict[str, object]) -> bool:
    try:
        agent.client.post("api", "v1", "namespaces", "default", "pods", body=pod)
    except AgentStatusError:
        return False
    return True


def _put_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"{"), _put_fifo])
def test_a_damaged_state_file_of_the_cpu_manager_is_set_aside(
    agent: AgentCommand, damage: Callable[[Path], object]
) -> None:
    agent.start()
    want(agent, "first")
    agent.wait_until(lambda: phases(agent) == {"first": "Running"})
    agent.kill()
    file = agent.folder / "root" / "cpu_manager_state"
    damage(file)
    agent.start()
    agent.wait_until(lambda: phases(agent) == {"first": "Running"})
    assert "the file is kept as cpu_manager_state.damaged" in agent.log_tail()
    assert file.is_file()


def test_a_damaged_record_of_a_pod_is_set_aside_and_the_others_run_on(agent: AgentCommand) -> None:
    agent.start()
    want(agent, "first")
    want(agent, "second")
    agent.wait_until(lambda: phases(agent) == {"first": "Running", "second": "Running"})
    agent.kill()
    (file,) = (
        file for file in (agent.folder / "root").glob("pods/*.json") if b'"first"' in file.read_bytes()
    )
    file.write_bytes(file.read_bytes()[:20])
    # An agent killed between its log and the record's file mends the record from the log at its next start.
    (agent.folder / "root" / "changes.log").write_bytes(b"")
    agent.start()
    agent.wait_until(lambda: phases(agent).get("second") == "Running")
    assert "RecordSetAside" in agent.log_tail() or f"{file.name}.damaged" in agent.log_tail()
    # Its source lists it still, so that it is admitted again.
    agent.wait_until(lambda: phases(agent) == {"first": "Running", "second": "Running"})


@contextmanager
def small_root(agent: AgentCommand) -> Iterator[Path]:
    """The agent's root directory on a disk of its own, of a megabyte and few files."""
    root = agent.folder / "root"
    root.mkdir()
    options = "size=1m,nr_inodes=400,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "nodewright-full", root], check=True)
    try:
        yield root
    finally:
        agent.stop()
        subprocess.run(["umount", "--lazy", root], check=True)


def fill(root: Path) -> None:
    """Leaves room for neither a byte nor a file."""
    with suppress(OSError), (root / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with suppress(OSError):
        for number in itertools.count():
            (root / f"filler-{number}").touch()


def is_full(root: Path) -> bool:
    return os.statvfs(root).f_bavail == 0


FILLS = ("head -c 100M /dev/zero > {path}/file; exec sleep 1000", "yes & exec sleep 1000", "exec sleep 1000")


@pytest.mark.parametrize(
    ("command", "is_killed"),
    [*zip(FILLS, (False, False, True), strict=True), (FILLS[1], True)],
    ids=["emptyDir", "log", "another process, killed", "log, killed"],
)
def test_pods_are_deleted_on_a_disk_that_is_full(
    agent: AgentCommand, command: str, *, is_killed: bool
) -> None:
    with small_root(agent) as root:
        agent.start()
        agent.wait_until(agent.is_ready)
        path = root / "volumes" / "filling" / "volumes" / "kubernetes.io~empty-dir" / "data"
        pod = yaml.safe_load(POD.format(name="full"))
        container = {**pod["spec"]["containers"][0], "command": ["sh", "-c", command.format(path=path)]}
        if "{path}" in command:
            # The path of the volume has the pod's uid, which a manifest may choose.
            pod["metadata"]["uid"] = "filling"
            pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
            container["volumeMounts"] = [{"name": "data", "mountPath": str(path)}]
        pod["spec"]["containers"] = [container]
        if "{path}" in command:
            (agent.folder / "pods" / "full.yaml").write_text(yaml.safe_dump(pod))
        else:
            agent.client.post("api", "v1", "namespaces", "default", "pods", body=pod)
        agent.wait_until(lambda: phases(agent) == {"full": "Running"})
        if command is not FILLS[-1]:
            agent.wait_until(lambda: is_full(root))
        fill(root)
        if "{path}" in command:
            (agent.folder / "pods" / "full.yaml").unlink()
        else:
            agent.client.delete("api", "v1", "namespaces", "default", "pods", "full")
        if is_killed:
            agent.kill()
            agent.start()
        agent.wait_until(lambda: agent.is_ready() and phases(agent) == {})
        assert CgroupFS(agent.group).processes(agent.group) == ()
        assert not path.exists()


def fill_but(root: Path, left_bytes: int) -> None:
    """Leaves room for so many bytes."""
    status = os.statvfs(root)
    (root / "filler").write_bytes(b"x" * max(status.f_bavail * status.f_frsize - left_bytes, 0))


@pytest.mark.parametrize("is_killed", [False, True])
def test_pods_are_deleted_on_a_disk_that_the_journal_fills(agent: AgentCommand, *, is_killed: bool) -> None:
    with small_root(agent) as root:
        agent.start()
        agent.wait_until(agent.is_ready)
        agent.client.post(
            "api", "v1", "namespaces", "default", "pods", body=yaml.safe_load(POD.format(name="full"))
        )
        agent.wait_until(lambda: phases(agent) == {"full": "Running"})
        journal = root / "journal.json"
        at_first = journal.stat().st_size
        fill_but(root, 64 << 10)
        # A pod that is refused and deleted leaves nothing but its events in the journal.
        passing = yaml.safe_load(POD.format(name="passing"))
        refused = {**passing["spec"]["containers"][0], "resources": {"requests": {"cpu": "1000"}}}
        passing["spec"]["containers"] = [{**refused, "name": f"container-{at}"} for at in range(50)]
        while not is_full(root):
            with suppress(AgentStatusError):
                agent.client.post("api", "v1", "namespaces", "default", "pods", body=passing)
            with suppress(AgentStatusError):
                agent.client.delete("api", "v1", "namespaces", "default", "pods", "passing")
            agent.wait_until(lambda: phases(agent).keys() == {"full"})
        assert journal.stat().st_size - at_first > 16 << 10
        fill(root)
        agent.client.delete("api", "v1", "namespaces", "default", "pods", "full")
        if is_killed:
            agent.kill()
            agent.start()
        agent.wait_until(lambda: agent.is_ready() and phases(agent) == {})
        assert CgroupFS(agent.group).processes(agent.group) == ()
        for filler in root.glob("filler*"):
            filler.unlink()
        agent.wait_until(lambda: _created(agent, yaml.safe_load(POD.format(name="next"))))


def test_an_agent_starts_on_a_full_disk_and_stores_its_state_once_there_is_room(agent: AgentCommand) -> None:
    with small_root(agent) as root:
        agent.start()
        want(agent, "first")
        agent.wait_until(lambda: phases(agent) == {"first": "Running"})
        agent.kill()
        (root / "changes.log").write_bytes(b"")
        fill(root)
        agent.start()
        agent.wait_until(lambda: phases(agent) == {"first": "Running"})
        assert "StateNotKept" in agent.log_tail()
        for filler in root.glob("filler*"):
            filler.unlink()
        want(agent, "second")
        agent.wait_until(lambda: phases(agent) == {"first": "Running", "second": "Running"})
        agent.kill()
        agent.start()
        agent.wait_until(lambda: phases(agent) == {"first": "Running", "second": "Running"})
