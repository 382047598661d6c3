"""`kubectl exec`, `attach`, `cp`, `port-forward`, `logs` through a real API server, on containers of containerd."""

import http.client
import os
import pty
import re
import select
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.live.containerd import APP, Containerd, lacking
from tests.support.cluster_bench import ClusterBench, cluster_bench
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS, NODE_TOKEN

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
    pytest.mark.skipif(
        not os.access(f"{ASSETS}/kubectl", os.X_OK),
        reason="KUBEBUILDER_ASSETS names no kube-apiserver and kubectl",
    ),
]
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    folder = tmp_path_factory.mktemp("cluster")
    authority = CertificateAuthority(folder, "authority")
    client = authority.client_certificate("kube-apiserver-kubelet-client", "system:masters")
    (folder / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"port: {free_port()}\nhealthzPort: 0\nevictionHard: {{}}\n"
        f"authentication: {{x509: {{clientCAFile: {authority.file}}}}}\n"
    )
    options = ("--config", f"{folder}/kubelet.yaml", "--kubelet-api")
    server_options = (
        f"--kubelet-client-certificate={client.certificate}",
        f"--kubelet-client-key={client.key}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    with (
        Containerd() as containerd,
        cluster_bench(
            folder,
            *options,
            f"--container-runtime-endpoint={containerd.endpoint}",
            server_options=server_options,
        ) as bench,
    ):
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        bench.create_pod("web", FOREVER, containers=[container("main", FOREVER)], hostNetwork=True)
        bench.wait_until(lambda: bench.phase("web") == "Running")
        yield bench


def container(name: str, script: str, **fields: object) -> dict[str, object]:
    return {"name": name, "image": APP, "imagePullPolicy": "Never", "command": ["sh", "-c", script], **fields}


def test_the_api_server_decides_who_may_do_what(cluster: ClusterBench) -> None:
    endpoint = cluster.node_status()["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def status(token: str, path: str) -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", endpoint, context=context, timeout=30)
        with closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status

    assert status("admin", "/pods") == 200
    assert status("admin", "/exec/default/web/main") == 400
    assert status(NODE_TOKEN, "/exec/default/web/main") == 403
    assert status("unknown", "/pods") == 401


def test_the_metrics_of_a_joined_node_are_a_kubelets(cluster: ClusterBench) -> None:
    volume = {"name": "scratch", "emptyDir": {}}
    mounted = container("main", FOREVER, volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    cluster.create_pod("counted", FOREVER, containers=[mounted], volumes=[volume], hostNetwork=True)
    cluster.wait_until(lambda: cluster.phase("counted") == "Running")
    command = cluster.kubectl("get", "--raw", "/api/v1/nodes/worker/proxy/metrics")
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    for name in (
        *("kubelet_pleg_relist_duration_seconds_count ", "kubelet_pleg_relist_interval_seconds_count "),
        *(
            "kubelet_pleg_last_seen_seconds ",
            'kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""}',
        ),
        *("kubelet_pod_start_total_duration_seconds_count ", "kubelet_pod_start_sli_duration_seconds_count "),
        *("kubelet_pod_status_sync_duration_seconds_count ", "kubelet_containers_per_pod_count_count "),
        'kubelet_cgroup_manager_duration_seconds_count{operation_type="create"}',
        'volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"}',
        'storage_operation_duration_seconds_count{volume_plugin="kubernetes.io/empty-dir"',
        *("kubelet_node_startup_duration_seconds ", "kubelet_node_startup_registration_duration_seconds "),
    ):
        (value,) = re.findall(rf"(?m)^{re.escape(name)}.*? ?(\S+)$", text) or ["0"]
        assert float(value) > 0, name
    subprocess.run(cluster.kubectl("delete", "pod", "counted"), check=True, timeout=60)


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_exec_carries_all_streams_and_the_exit_code(
    cluster: ClusterBench, websockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
    script = "read line; echo got $line; echo bad >&2; exit 7"
    ran = subprocess.run(
        cluster.kubectl("exec", "-i", "web", "--", "sh", "-c", script),
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (7, "got hello\n"), (ran.stderr, cluster.agent.log_tail())
    assert ran.stderr.startswith("bad\n")


def test_a_large_stream_arrives_whole(cluster: ClusterBench) -> None:
    count = 32 << 20
    command = cluster.kubectl("exec", "web", "--", "sh", "-c", f"head -c {count} /dev/zero | tr '\\0' x")
    ran = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert ran.stdout == b"x" * count


def test_a_terminal_is_resized(cluster: ClusterBench) -> None:
    terminal_is_resized(cluster)


def terminal_is_resized(cluster: ClusterBench) -> None:
    """A shell on a terminal, whose size changes."""
    master, slave = pty.openpty()
    command = cluster.kubectl("exec", "-it", "web", "--", "sh")
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        _set_size(master, 30, 100)
        read = _until(master, b"# ")
        os.write(master, b"stty size\n")
        read = _until(master, rb"\d+ \d+\r")
        os.kill(process.pid, signal.SIGWINCH)
        _set_size(master, 41, 123)
        os.kill(process.pid, signal.SIGWINCH)
        deadline_s = time.monotonic() + 20
        while b"41 123" not in read and time.monotonic() < deadline_s:
            os.write(master, b"stty size\n")
            read = _until(master, rb"\d+ \d+\r")
        assert b"41 123" in read
        os.write(master, b"exit 3\n")
        _drain(master)
        assert process.wait(20) == 3
    finally:
        process.kill()
        os.close(master)


def _set_size(terminal: int, rows: int, columns: int) -> None:
    subprocess.run(["stty", "rows", str(rows), "cols", str(columns)], stdin=terminal, check=True)


def _until(terminal: int, pattern: bytes) -> bytes:
    """What the terminal shows, until it matches."""
    read, deadline_s = b"", time.monotonic() + 30
    while not re.search(pattern, read):
        assert time.monotonic() < deadline_s, read
        if select.select([terminal], [], [], 0.5)[0]:
            read += os.read(terminal, 65536)
    return read


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        return


def test_files_are_copied_in_and_out(cluster: ClusterBench, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(os.urandom(3 << 20))
    cluster.kubectl_output("cp", f"{tmp_path}/in", "web:/tmp/copied")
    cluster.kubectl_output("cp", "web:/tmp/copied", f"{tmp_path}/out")
    assert (tmp_path / "in").read_bytes() == (tmp_path / "out").read_bytes()


def test_a_port_is_forwarded(cluster: ClusterBench) -> None:
    inner, outer = free_port(), free_port()
    serve = f"mkdir -p /tmp/www; echo served > /tmp/www/index.html; httpd -p 127.0.0.1:{inner} -h /tmp/www"
    cluster.kubectl_output("exec", "web", "--", "sh", "-c", serve)
    command = cluster.kubectl("port-forward", "pod/web", f"{outer}:{inner}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Forwarding from" in process.stdout.readline()
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", outer), 20) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.endswith(b"served\n")
        process.terminate()


def test_attach_joins_the_first_process(cluster: ClusterBench) -> None:
    script = "while read line; do echo heard $line; done; echo end"
    cluster.create_pod(
        "reader",
        "",
        containers=[container("main", script, stdin=True, stdinOnce=True)],
        restartPolicy="Never",
    )
    cluster.wait_until(lambda: cluster.phase("reader") == "Running")
    command = cluster.kubectl("attach", "-i", "reader")
    ran = subprocess.run(command, input="one\ntwo\n", capture_output=True, text=True, check=False, timeout=60)
    assert "heard one\nheard two\n" in ran.stdout, (ran.stderr, cluster.agent.log_tail())
    cluster.wait_until(lambda: cluster.phase("reader") == "Succeeded")
    assert cluster.kubectl_output("logs", "reader") == "heard one\nheard two\nend\n"
    cluster.delete_pod("reader")


def test_logs_are_followed_and_selected(cluster: ClusterBench) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 0.3; done; exit 1"
    cluster.create_pod("failing", "", containers=[container("main", script)], restartPolicy="OnFailure")
    cluster.wait_until(lambda: bool(cluster.pod("failing").get("status", {}).get("containerStatuses")))
    cluster.wait_until(lambda: cluster.phase("failing") == "Running")
    followed = cluster.kubectl_output("logs", "-f", "failing")
    assert followed == "line 1\nline 2\nline 3\n"
    cluster.wait_until(lambda: cluster.pod("failing")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    assert cluster.kubectl_output("logs", "--previous", "failing") == "line 1\nline 2\nline 3\n"
    assert cluster.kubectl_output("logs", "--previous", "--tail=1", "failing") == "line 3\n"
    timed = cluster.kubectl_output("logs", "--previous", "--timestamps", "--tail=1", "failing")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z line 3\n", timed)
    assert cluster.kubectl_output("logs", "--previous", "--since=1h", "failing").count("\n") == 3
    cluster.delete_pod("failing")


def test_a_container_for_debugging_is_attached_to(cluster: ClusterBench) -> None:
    image = ("--image", APP, "--image-pull-policy=Never")
    script = "read line; echo got $line"
    command = cluster.kubectl("debug", "web", "-i", "-c", "probe", *image, "--", "sh", "-c", script)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # The runtime leaves a client whose input has ended: it stays open.
        process.stdin.write("typed\n")
        process.stdin.flush()
        assert process.stdout.readline() == "got typed\n", cluster.agent.log_tail()
        assert process.wait(30) == 0
    assert cluster.kubectl_output("logs", "web", "-c", "probe") == "got typed\n"
