"""The credentials that images are pulled with: the pod's own pull secrets, then the node's."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nodewright.agent.host.ports import Credentials
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.rules.image_policy import (
    RegistryLogin,
    logins_of_config,
    logins_of_secret,
    matching_logins,
)
from nodewright.model.kubernetes.namespace_objects import Secret
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent


class PullSecrets:
    """Pull credentials, read again for each pull. ``root`` is the agent's own directory."""

    def __init__(
        self, object_cache: ConfigObjectCache, root: Path, record_event: Callable[[RecordEvent], None]
    ) -> None:
        self._object_cache, self._root, self._record_event = object_cache, root, record_event

    def __call__(self, pod: Pod, name: str) -> tuple[Credentials, ...]:
        """All credentials to try for an image of this name, in order.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, getPullSecretsForPod; kubelet/images/image_manager.go, pullImage.
        Departs: an unreadable secret is reported and skipped; the kubelet does not pull the image at all.
        """
        node_logins, errors = docker_logins(self._root)
        for error in errors:
            self._record_event(
                RecordEvent(uid="", is_warning=True, reason="CredentialsNotRead", message=error)
            )
        logins = (*matching_logins(self._logins_of_pod(pod), name), *matching_logins(node_logins, name))
        return tuple(dict.fromkeys(Credentials(login.username, login.password) for login in logins))

    def _logins_of_pod(self, pod: Pod) -> tuple[RegistryLogin, ...]:
        secrets = self._object_cache.sources(pod).secrets
        logins: list[RegistryLogin] = []
        unreadable: list[str] = []
        for secret_reference in pod.spec.image_pull_secrets:
            name = str(secret_reference.get("name") or "")
            if not name:
                continue
            secret = secrets.get(name)
            try:
                logins += logins_of_secret(secret) if isinstance(secret, Secret) else ()
            except ValueError:
                secret = None
            if not isinstance(secret, Secret):
                unreadable.append(name)
        if unreadable:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(unreadable)}); "
                "attempting to pull the image may not succeed."
            )
            reason = "FailedToRetrieveImagePullSecret"
            self._record_event(RecordEvent(uid=pod.uid, is_warning=True, reason=reason, message=message))
        return tuple(logins)


def docker_logins(root: Path) -> tuple[tuple[RegistryLogin, ...], tuple[str, ...]]:
    """The credentials in the first file that can be read, and the errors in those before it.

    `config.json` is looked for in ``root``, the working directory, `~/.docker` and `/.docker`; then `.dockercfg` in
    ``root``, the working directory, the home and `/`.

    Follows: v1.36, pkg/credentialprovider/config.go, ReadDockerConfigFile.
    """
    errors: list[str] = []
    for path, is_old in _config_paths(root):
        try:
            return logins_of_config(path.read_bytes(), is_old=is_old), tuple(errors)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            errors.append(f"{path}: {error.strerror}")
        except ValueError as error:
            errors.append(f"{path}: {error}")
    return (), tuple(errors)


def _config_paths(root: Path) -> Iterator[tuple[Path, bool]]:
    home = Path(os.environ.get("HOME") or "/")
    for directory in (root, Path.cwd(), home / ".docker", Path("/.docker")):
        yield directory / "config.json", False
    for directory in (root, Path.cwd(), home, Path("/")):
        yield directory / ".dockercfg", True
