"""A command line of the kubelet as settings of the agent."""

import shlex
from pathlib import Path

import pytest

from nodewright.agent.assembly.kubelet_flags import (
    flag_uses,
    kubelet_settings,
    parse_kubelet_flags,
)
from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR
from nodewright.documents.profiles.kubelet_flags import FLAG_KINDS, overridden
from nodewright.model.errors import InputError
from nodewright.model.releases.release_changes import unknown_flags
from nodewright.model.releases.release_table import NEWEST

NODE_SUITE = shlex.split(
    "--runtime-cgroups=/docker-daemon --kubeconfig /x/kubeconfig --root-dir /var/lib/kubelet --v 4 --config-dir /x/d "
    "--hostname-override n1 --container-runtime-endpoint unix:///r.sock --image-service-endpoint unix:///r.sock "
    "--config /x/c --system-cgroups= --kubelet-cgroups= --runtime-cgroups= --feature-gates A=true,B=false"
)
"""As upstream's test/e2e_node starts a kubelet."""


def test_the_command_line_of_the_node_suite_is_taken_as_it_is() -> None:
    line = parse_kubelet_flags(NODE_SUITE)
    assert line.options == {
        "kubeconfig": "/x/kubeconfig",
        "root_dir": "/var/lib/kubelet",
        "config_dir": "/x/d",
        "node_name": "n1",
        "config": "/x/c",
    }
    assert dict(line.overrides) == {
        "containerRuntimeEndpoint": "unix:///r.sock",
        "imageServiceEndpoint": "unix:///r.sock",
        "systemCgroups": "",
        "kubeletCgroups": "",
        "featureGates": {"A": True, "B": False},
    }
    assert [text.partition(":")[0] for text in line.ignored] == ["--runtime-cgroups", "--v"]


@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        (["--anonymous-auth"], {"authentication.anonymous.enabled": True}),
        (["--anonymous_auth=false"], {"authentication.anonymous.enabled": False}),
        (["--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns", "10.0.0.3"], {"clusterDNS": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<10%"], {"evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"}}),
        (["--kube-reserved=cpu=1", "--kube-reserved=memory=1Gi"], {"kubeReserved": {"cpu": "1", "memory": "1Gi"}}),
        (["--reserved-memory", "0:memory=1Gi,hugepages-2Mi=4Mi"], {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}}]}),
        (["--register-with-taints=a=b:NoSchedule"], {"registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
        (["--manifest-url-header=a:b,a:c"], {"staticPodURLHeader": {"a": ["b", "c"]}}),
        (["--max-pods=5", "--max-pods=6"], {"maxPods": 6}),
        (["--runonce=false", "--seccomp-default=false"], {}),
    ],
)  # fmt: skip
def test_a_flag_is_a_field_of_the_configuration(arguments: list[str], overrides: dict[str, object]) -> None:
    assert dict(parse_kubelet_flags(arguments).overrides) == overrides


def test_all_faults_of_a_command_line_are_reported_at_once() -> None:
    with pytest.raises(InputError) as refused:
        parse_kubelet_flags(
            ["--fo", "--runonce", "word", "--max-pods=x", "--kube-reserved=cpu", "--root-dir"]
        )
    faults = [(fault.source, fault.value) for fault in refused.value.faults]
    assert faults == [
        ("--fo", None),
        ("--runonce", "true"),
        ("", "word"),
        ("--max-pods", "x"),
        ("--kube-reserved", "cpu"),
        ("--root-dir", None),
    ]


def test_flags_win_over_the_file_and_feature_gates_are_added_to_it() -> None:
    document = {
        "maxPods": 5,
        "kubeletCgroups": "/k",
        "evictionHard": {"pid.available": "1"},
        "featureGates": {"A": True},
    }
    line = parse_kubelet_flags(
        ["--max-pods=6", "--kubelet-cgroups=", "--eviction-hard=memory.available<1", "--feature-gates=B=true"]
    )
    assert overridden(document, line.overrides) == {
        "maxPods": 6,
        "kubeletCgroups": "",
        "evictionHard": {"memory.available": "1"},
        "featureGates": {"A": True, "B": True},
    }


@pytest.mark.parametrize(
    ("document", "flag"),
    [
        ({"featureGates": "abc"}, "--feature-gates=A=true"),
        ({"featureGates": [1]}, "--feature-gates=A=true"),
        ({"authentication": "x"}, "--anonymous-auth=false"),
        ({"authentication": {"webhook": 1}}, "--authentication-token-webhook=true"),
    ],
)
def test_a_field_of_the_file_that_cannot_hold_the_flag_stays_and_is_refused_later(
    document: dict[str, object], flag: str
) -> None:
    assert overridden(document, parse_kubelet_flags([flag]).overrides) == document


@pytest.mark.parametrize("arguments", [[], ["--feature-gates", "SidecarContainers=true"]])
def test_gates_of_a_configuration_that_are_no_mapping_are_an_error(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: abc\n"
    )
    code = run(["agent", "--dry-run", "--node", "vm-4", "--config", str(path), *arguments])
    assert code == ERROR
    assert "featureGates: Invalid value" in capsys.readouterr().err


def test_settings_are_those_of_a_kubelet() -> None:
    settings = kubelet_settings(
        parse_kubelet_flags(["--config=", "--node-labels=a=b", "--node-labels=c=d"]), Path("/s")
    )
    assert (settings.config, settings.root_dir, settings.node_labels) == (
        None,
        Path("/var/lib/kubelet"),
        ("a=b,c=d",),
    )
    assert settings.kubelet_api
    assert settings.is_kubelet


def test_a_flag_that_the_newest_kubelet_no_longer_has_is_refused_with_its_release() -> None:
    with pytest.raises(
        InputError, match=r"--container-hints: no flag of the kubelet since 1\.37: remove the flag"
    ):
        parse_kubelet_flags(["--container-hints=/etc/hints.json"])


def test_every_flag_has_a_use_with_its_reason() -> None:
    uses = flag_uses()
    gone = {flag.name for flag in unknown_flags(FLAG_KINDS, NEWEST.name)}
    assert (len(uses), len(gone)) == (131, 18)
    assert uses.keys() == FLAG_KINDS.keys() - gone
    assert uses["max-pods"] == "used: maxPods"
    assert uses["runonce"] == "refused unless false: the agent runs until it is stopped"
