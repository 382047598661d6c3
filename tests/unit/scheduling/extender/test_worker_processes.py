"""Workers as processes: they answer over their connection, and are reported when they end."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.fake_api_server import fake_api_server, kubeconfig_text
from tests.unit.scheduling.extender.test_extender_network import options

from nodewright.model.errors import HostError
from nodewright.scheduling.extender.shard_messages import CountsAnswer, CountsShare
from nodewright.scheduling.extender.worker_link import WorkerLostError
from nodewright.scheduling.extender.worker_processes import ExtenderWorker

NODE = {"metadata": {"name": "node-0", "uid": "uid-0"}}
DEFAULTS = {
    "export_max_age": 60.0,
    "export_port": 0,
    "scorer": "",
    "policies": (),
    "fail": "closed",
    "workers": 2,
}


def test_a_worker_answers_and_is_reported_when_it_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")

    async def scenario(kubeconfig: Path) -> None:
        chosen = options(
            **DEFAULTS,
            kubeconfig=str(kubeconfig),
            export_token_file=token,
            strict=False,
            deny_impossible_pods=False,
            leader_elect=False,
            lease="",
        )
        worker, changes = ExtenderWorker(0, chosen), asyncio.Queue[int]()
        worker.on_change = lambda: changes.put_nowait(worker.process_id)
        with pytest.raises(WorkerLostError, match="does not run"):
            await worker.ask(CountsShare())
        running = asyncio.create_task(worker.run())
        process = await changes.get()
        reason = "the cluster has not been read yet"
        while reason:
            # On a busy machine the process may not have started after the time for an answer.
            with suppress(WorkerLostError):
                answer = await worker.ask(CountsShare())
                assert isinstance(answer, CountsAnswer)
                reason = answer.not_ready_reason
        os.kill(process, signal.SIGKILL)
        with pytest.raises(HostError, match="worker 0"):
            await running
        assert await changes.get() == 0

    with fake_api_server() as server:
        server.add("/api/v1/nodes", NODE)
        server.add("/api/v1/pods")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(kubeconfig_text(server), "utf-8")
        asyncio.run(scenario(kubeconfig))
    # The first process warns of a token that any node can read; its workers do not repeat it.
    assert "--export-ca-file" not in capfd.readouterr().err
