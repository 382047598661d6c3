"""What the command line and the configuration say of the kubelet's API, and what of it cannot be done."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR


def run_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], *words: str) -> int:
    """An agent that comes as far as what is wanted of it, which is refused."""
    place = tmp_path / "config.yaml"
    place.write_text(
        yaml.safe_dump(
            {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **config}
        )
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.setpriority", lambda *_: None)
    own = ["--root-dir", str(tmp_path / "root"), "--cgroup-root", "/nodewright-none"]
    own += ["--socket", str(tmp_path / "s")]
    return run(["agent", "--config", str(place), *own, "--kubelet-api", *words])


def test_settings_that_need_an_api_server_are_rejected_with_the_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"authentication": {"webhook": {"enabled": True}}, "authorization": {"mode": "Webhook"}}
    assert run_agent(tmp_path, monkeypatch, config, "--grant", "all=me") == ERROR
    err = capsys.readouterr().err
    assert (
        "authentication.webhook.enabled: Invalid value: true: this agent has no API server for webhooks"
        in err
    )
    assert 'authorization.mode: Invalid value: "Webhook": this agent has no API server for webhooks' in err
    assert '--grant: Invalid value: "all=me": must be read=user:NAME' in err


def test_a_file_of_tokens_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("only-one-column\n")
    assert run_agent(tmp_path, monkeypatch, {}, "--token-auth-file", str(tokens)) == ERROR
    err = capsys.readouterr().err
    assert (
        "tokens.csv: line 1: expected token,user,uid and optionally groups and an expiry, not 1 columns"
        in err
    )
    assert "only-one-column" not in err


def test_a_certificate_without_its_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_agent(tmp_path, monkeypatch, {"tlsCertFile": "/a.crt"}) == ERROR
    assert (
        "tlsPrivateKeyFile: Required value: must be set together: a certificate and its key"
        in capsys.readouterr().err
    )
