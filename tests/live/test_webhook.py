"""A real API server reviews pods with the extender's webhook: kubectl shows its warnings and denials."""

import argparse
import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS, needs_real, real_api_server

from tools.scheduling_bench import Bench, ExtenderProcess
from tools.source import ROOT

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs_real("kubectl"),
]
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("webhook")
    flag = f"--admission-control-config-file={admission_configuration(folder)}"
    with real_api_server(folder, flags=(flag,)) as server:
        yield Bench(server, folder, argparse.Namespace(nodes=2, pods=0, seed=1))


def admission_configuration(folder: Path) -> Path:
    """How the API server proves its identity to webhooks: the extender answers known callers only."""
    authority = CertificateAuthority(folder, "webhooks")
    pair = authority.client_certificate("kube-apiserver")
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    kubeconfig, configuration = folder / "webhooks.kubeconfig", folder / "admission.yaml"
    # Of a Service the name of the user would be nodewright-extender.nodewright.svc.
    users = [{"name": "*", "user": user}]
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": plugin}],
    }
    configuration.write_text(yaml.safe_dump(document))
    return configuration


@asynccontextmanager
async def reviewing(
    bench: Bench, *options: str, failure_policy: str = "Ignore"
) -> AsyncIterator[ExtenderProcess]:
    """An extender that the API server asks about new pods, on two nodes with two NUMA nodes of eight CPUs each."""
    [hook] = yaml.safe_load_all(
        (ROOT / "packaging/kubernetes/components/webhook/webhook.yaml").read_text("utf-8")
    )
    pair = bench.pair
    files = (
        *("--tls-cert-file", str(pair.certificate), "--tls-private-key-file", str(pair.key)),
        *("--client-ca-file", str(bench.folder / "webhooks.crt")),
    )
    async with bench.nodes():
        extender = ExtenderProcess(bench.folder, bench, *files, *options)
        extender.start()
        try:
            await extender.wait_for_exact(2)
            [webhook] = hook["webhooks"]
            bundle = base64.b64encode(pair.certificate.read_bytes()).decode()
            url = f"https://127.0.0.1:{extender.port}/v1/review-pods"
            # The API server of the test reaches no Service.
            webhook |= {"clientConfig": {"url": url, "caBundle": bundle}, "failurePolicy": failure_policy}
            answer = await asyncio.to_thread(bench.server.create, HOOKS, hook)
            assert answer.code == 201, answer.message
            yield extender
        finally:
            extender.stop()
            await asyncio.to_thread(bench.server.request, "DELETE", f"{HOOKS}/{hook['metadata']['name']}")


def kubectl(bench: Bench, name: str, cpu: int) -> subprocess.CompletedProcess[str]:
    """Creates a pod."""
    amounts = {"cpu": str(cpu), "memory": "64Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    command = [f"{ASSETS}/kubectl", "--kubeconfig", str(bench.kubeconfig), "create"]
    command += ["--validate=false", "-f", "-"]  # Only the webhook is asked.
    return subprocess.run(command, input=json.dumps(pod), capture_output=True, text=True, check=False)


async def created(bench: Bench, name: str, cpu: int) -> tuple[int, str]:
    """The exit code and everything that kubectl prints about a new pod."""
    result = await asyncio.to_thread(kubectl, bench, name, cpu)
    return result.returncode, result.stdout + result.stderr


async def until_reviewed(bench: Bench) -> str:
    """What kubectl prints about a pod that is too large, as soon as the API server asks about it."""
    text = ""
    for attempt in range(60):
        _, text = await created(bench, f"too-large-{attempt}", 99)
        if "can ever hold" in text:
            return text
        await asyncio.sleep(0.5)
    raise AssertionError(text)


def test_kubectl_warns_of_pods_that_no_node_can_ever_hold(bench: Bench) -> None:
    async def scenario() -> None:
        async with reviewing(bench):
            text = await until_reviewed(bench)
            assert "Warning: none of the 2 nodes can ever hold this pod" in text
            assert "created" in text
            # No NUMA node has nine CPUs, though the node has sixteen.
            code, text = await created(bench, "too-wide", 9)
            assert (code, "Warning" in text, "NUMA" in text) == (0, True, True)
            code, text = await created(bench, "small", 2)
            assert (code, "Warning" in text) == (0, False)

    asyncio.run(scenario())


def test_pods_are_denied_on_request_and_failures_as_the_policy_says(bench: Bench) -> None:
    async def scenario() -> None:
        async with reviewing(bench, "--deny-impossible-pods", failure_policy="Fail") as extender:
            text = await until_reviewed(bench)
            assert 'admission webhook "pods.nodewright.dev" denied the request' in text
            code, text = await created(bench, "denied", 9)
            assert (code, "NUMA" in text) == (1, True)
            assert (await created(bench, "allowed", 2))[0] == 0
            extender.kill()
            code, text = await created(bench, "unanswered", 2)
            assert (code, "failed calling webhook" in text) == (1, True)

    asyncio.run(scenario())


def test_pods_are_created_without_the_webhook_if_it_is_ignorable(bench: Bench) -> None:
    async def scenario() -> None:
        async with reviewing(bench) as extender:
            await until_reviewed(bench)
            extender.kill()
            code, text = await created(bench, "unreviewed", 99)
            assert (code, "created" in text, "can ever hold" in text) == (0, True, False)

    asyncio.run(scenario())
