"""The kubelet's HTTP API of an agent that runs pods here: needs root and cgroups that can be written."""

import json
import os
import socket
import ssl
import time
import urllib.request
from pathlib import Path

import pytest

from tools.agent_idle import running

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - {name: main, image: none, command: [sh, -c, "echo hello; while :; do :; done"], resources: {limits: {cpu: 100m, memory: 32Mi}}}
"""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(socket.getsockname()[1]) for socket in held]
    for each in held:
        each.close()
    return ports


def test_what_a_pod_uses_and_says_is_told_over_tls(tmp_path: Path) -> None:
    port, healthz = free_ports(2)
    (tmp_path / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"address: 127.0.0.1\nport: {port}\nhealthzPort: {healthz}\nevictionHard: {{}}\n"
    )
    (tmp_path / "tokens.csv").write_text("secret,admin,1\n")
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "web.yaml").write_text(POD)
    options = [
        "--config",
        str(tmp_path / "config.yaml"),
        "--workload-dir",
        str(tmp_path / "pods"),
        "--kubelet-api",
    ]
    options += ["--token-auth-file", str(tmp_path / "tokens.csv"), "--grant", "write=user:admin"]
    with running(tmp_path, *options):
        context = ssl.create_default_context(cafile=tmp_path / "root" / "pki" / "kubelet.crt")

        def http_request(path: str, data: bytes | None = None) -> str:
            request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data)
            request.add_header("Authorization", "Bearer secret")
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310 - ours
                return str(answer.read(), "utf-8")

        deadline = time.monotonic() + 60
        while "kubelet_running_pods 1\n" not in http_request("/metrics"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (pod,) = json.loads(http_request("/pods"))["items"]
        assert pod["status"]["phase"] == "Running"
        while not (text := http_request("/containerLogs/default/web/main")):
            assert time.monotonic() < deadline
        assert text == "hello\n"
        assert http_request("/run/default/web/main?cmd=echo%20there", b"") == "there\n"
        http_request("/stats/summary")
        time.sleep(2)
        (use,) = json.loads(http_request("/stats/summary"))["pods"]
        (container,) = use["containers"]
        for each in (use, container):
            assert 0 < each["cpu"]["usageNanoCores"] < 200_000_000
            assert each["cpu"]["usageCoreNanoSeconds"] > 10**7
            assert each["memory"]["workingSetBytes"] > 0
        line = 'container_memory_working_set_bytes{container="main",pod="web",namespace="default"} '
        assert line in http_request("/metrics/resource")
