"""With what a pod may fetch its images: its own secrets, then what the machine has."""

from collections.abc import Callable
from pathlib import Path

from nodewright.agent.shelf import Shelf
from nodewright.agent.values import Tell
from nodewright.core.registries import Login, logins_of_secret, lookup
from nodewright.model.objects import Pod
from nodewright.world.docker_config import logins_here
from nodewright.world.ports import Credentials


class PullSecrets:
    """Credentials for images, read anew for each that is fetched. ``root`` is the agent's own directory."""

    def __init__(self, shelf: Shelf, root: Path, tell: Callable[[Tell], None]) -> None:
        self._shelf, self._root, self._tell = shelf, root, tell

    def __call__(self, pod: Pod, name: str) -> tuple[Credentials, ...]:
        """All that may be tried for an image of this name, in their order.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, getPullSecretsForPod; kubelet/images/image_manager.go, pullImage.
        Departs: a secret that makes no sense is told and passed over; there it keeps the image from being fetched.
        """
        here, wrong = logins_here(self._root)
        for said in wrong:
            self._tell(Tell(uid="", is_warning=True, reason="CredentialsNotRead", message=said))
        found = (*lookup(self._of_pod(pod), name), *lookup(here, name))
        return tuple(dict.fromkeys(Credentials(one.username, one.password) for one in found))

    def _of_pod(self, pod: Pod) -> tuple[Login, ...]:
        secrets = self._shelf.secrets(pod.metadata.namespace or "default")
        found: list[Login] = []
        failed: list[str] = []
        for told in pod.spec.image_pull_secrets:
            name = str(told.get("name") or "")
            if not name:
                continue
            try:
                found += logins_of_secret(secrets[name])
            except (KeyError, ValueError):
                failed.append(name)
        if failed:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(failed)}); "
                "attempting to pull the image may not succeed."
            )
            reason = "FailedToRetrieveImagePullSecret"
            self._tell(Tell(uid=pod.uid, is_warning=True, reason=reason, message=message))
        return tuple(found)
