"""The exporter's view of the kubelet's directory, with real mounts as its DaemonSet names them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.unit.scheduling.exporter.test_exporter import put

from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.model.values.idset import CPUSet
from tools.source import ROOT

pytestmark = pytest.mark.live

CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
}
DAEMON_SET = ROOT / "packaging" / "kubernetes" / "base" / "export-daemonset.yaml"
UNSHARE = ("unshare", "--mount", "--propagation", "slave")
SCRIPT = """
mount --rbind "$KUBELET" "$VIEW"
mount -o remount,bind,ro "$VIEW"
for name in $HIDDEN; do mount -t tmpfs -o ro none "$VIEW/$name"; done
echo ready
read -r _
grep -rs secret "$VIEW" || true
cat "$VIEW/cpu_manager_state"
"$PYTHON" -m nodewright export --once --node-name n --kubelet-root "$VIEW"
"""


@pytest.mark.skipif(
    subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="no mount namespace can be made here",
)
def test_state_files_are_seen_as_they_are_replaced_and_secrets_are_not(tmp_path: Path) -> None:
    [container] = yaml.safe_load(DAEMON_SET.read_text("utf-8"))["spec"]["template"]["spec"]["containers"]
    hidden = [
        Path(mount["mountPath"]).name for mount in container["volumeMounts"] if mount["name"] == "hidden"
    ]
    kubelet, view = tmp_path / "kubelet", tmp_path / "view"
    view.mkdir()
    for name in hidden:
        folder = kubelet / name / "below"
        folder.mkdir(parents=True)
        folder.joinpath("file").write_text("secret\n")
    (kubelet / "config.yaml").write_text(json.dumps(CONFIG))
    state = kubelet / "cpu_manager_state"
    state.write_text("old")
    environment = {
        **os.environ, "KUBELET": str(kubelet), "VIEW": str(view), "HIDDEN": " ".join(hidden), "PYTHON": sys.executable
    }  # fmt: skip
    process = subprocess.Popen(
        [*UNSHARE, "sh", "-euc", SCRIPT],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # As the kubelet does: by renaming.
    content = cpu_state_file(CPUState(CPUSet.of(), {}), "none")
    put(state, content)
    (kubelet / "pods" / "later").mkdir()
    (kubelet / "pods" / "later" / "file").write_text("secret\n")
    output, _ = process.communicate("\n")
    assert "secret" not in output
    assert content.decode() in output
    assert process.returncode == 0, output
    assert '"kind":"NodeExport"' in output
