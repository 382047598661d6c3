"""What a plain process cannot take from the agent: its descriptors, its time, its pods' files."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.test_processes import Bench, alone
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

pytestmark = pytest.mark.live


@alone
async def test_descriptors_of_the_process_that_started_the_agent_reach_no_container(bench: Bench) -> None:
    (bench.directory / "secret").write_text("hunter2")
    secret = os.open(bench.directory / "secret", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        id_ = await bench.run("app", "sh", "-c", "ls -l /proc/$$/fd; sleep 1000")
        inside = await bench.runtime.execute(id_, ("sh", "-c", "ls -l /proc/$$/fd"), 20)
        while "\n".join(bench.log("app")).count(" -> ") < 3:
            await asyncio.sleep(0.01)
        await bench.runtime.stop_container(id_, 0)
    finally:
        os.close(secret)
    for listing in (inside.stdout.decode(), "\n".join(bench.log("app"))):
        assert listing.count(" -> ") >= 3
        assert "secret" not in listing


@pytest.mark.parametrize("make", ["mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd", "mkdir"])
def test_a_termination_log_that_is_no_file_delays_nothing(make: str) -> None:
    @alone
    async def check(bench: Bench) -> None:
        place = Path(bench.directory / "runtime" / bench.uid / "app" / "0" / "termination-log")
        begin_s = time.monotonic()
        await bench.run("app", "sh", "-c", f"rm {place}; {make} {place}; exit 3")
        assert await bench.end_of("app") == (3, "Error", "")
        # A shim that waited would be waited for, too.
        assert time.monotonic() - begin_s < 60

    check()


UID = "11111111-2222-3333-4444-555555555555"
OBJECT = """
{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {password: hunter2}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: app, uid: {uid}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{{name: sec, secret: {{secretName: password}}}}, {{name: tmp, emptyDir: {{}}}}]
  containers:
    - name: main
      image: none
      securityContext: {{runAsUser: 12345}}
      command: [sh, -c, "cat {volumes}/kubernetes.io~secret/sec/password > $TERMINATION_MESSAGE_PATH; touch {volumes}/kubernetes.io~empty-dir/tmp/x; sleep 1000"]
      volumeMounts:
        - {{name: sec, mountPath: {volumes}/kubernetes.io~secret/sec}}
        - {{name: tmp, mountPath: {volumes}/kubernetes.io~empty-dir/tmp}}
"""


@pytest.fixture
def agent() -> Iterator[AgentCommand]:
    with private_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(prefix="nodewright-isolation-"))
        # As systemd makes it, and as everybody may look into it.
        (directory / "root").mkdir(0o755)
        directory.chmod(0o755)
        (directory / "pods").mkdir()
        made = AgentCommand(directory, cgroups.root, "--workload-dir", str(directory / "pods"))
        try:
            yield made
        finally:
            made.stop()
            cgroups.kill(cgroups.root)
            shutil.rmtree(directory)


def _succeeds(command: list[str], user: int) -> bool:
    return (
        subprocess.run(
            command, user=user, group=user, extra_groups=[], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_a_container_of_another_user_reaches_its_volumes_and_no_other_user_does(agent: AgentCommand) -> None:
    volumes = agent.folder / "root" / "volumes" / UID / "volumes"
    (agent.folder / "pods" / "secret.yaml").write_text(OBJECT)
    (agent.folder / "pods" / "pod.yaml").write_text(POD.format(uid=UID, volumes=volumes))
    agent.start()
    written = volumes / "kubernetes.io~empty-dir" / "tmp" / "x"
    agent.wait_until(written.exists)
    log = agent.folder / "root" / "volumes" / UID / "containers" / "main" / "0"
    assert log.read_text() == "hunter2"
    assert written.stat().st_uid == 12345
    secret = volumes / "kubernetes.io~secret" / "sec" / "password"
    for command in (["cat", str(secret)], ["cat", str(log)], ["touch", str(written)]):
        assert (_succeeds(command, 12345), _succeeds(command, 65534)) == (True, False), command
    for name in ("", "volumes", "containers", "pods", "logs", "device-plugins"):
        assert not _succeeds(["ls", str(agent.folder / "root" / name)], 65534), name
