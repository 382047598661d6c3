"""Pods fetch images with their own secrets, and with what the machine has."""

import json
from pathlib import Path

import pytest

from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.image_manager import PullSecrets
from nodewright.agent.state.agent_state import PodSource
from nodewright.model.kubernetes.cluster_objects import Secret
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.kubernetes.runtime_status import RecordEvent
from nodewright.testing.objects import a_pod


def config(name: str) -> bytes:
    return json.dumps({"auths": {"reg.example": {"username": name, "password": "x"}}}).encode()


def test_secrets_come_first_then_the_machines_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    (home / ".docker").mkdir(parents=True)
    root.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    events, object_cache = list[RecordEvent](), ConfigObjectCache()
    secret = Secret(
        metadata=ObjectMeta(name="mine", namespace="default"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": config("pods")},
    )
    object_cache.put(PodSource.FILE, "x", [], [secret])
    credentials_for = PullSecrets(object_cache, root, events.append)
    pod = a_pod(imagePullSecrets=[{"name": "mine"}, {"name": "gone"}, {}])

    def names(image: str = "reg.example/web") -> list[str]:
        return [credential.username for credential in credentials_for(pod, image)]

    assert names() == ["pods"]
    assert events[0].message == (
        "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed."
    )
    (home / ".dockercfg").write_bytes(json.dumps(json.loads(config("old"))["auths"]).encode())
    assert names() == ["pods", "old"]
    (home / ".docker/config.json").write_bytes(config("home"))
    assert names() == ["pods", "home"]
    (root / "config.json").write_bytes(config("root"))
    assert names() == ["pods", "root"]
    assert names("other.example/web") == []
    (root / "config.json").write_bytes(b"{")
    assert names() == ["pods", "home"]
    (text,) = [event.message for event in events if event.reason == "CredentialsNotRead"]
    assert text.startswith(f"{root}/config.json: ")
