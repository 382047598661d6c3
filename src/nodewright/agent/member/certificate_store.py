"""The certificate of the node and its key on disk: one file for each pair, and a link to the current one."""

import os
import time
from contextlib import suppress
from pathlib import Path

from nodewright.agent.member.certificates import CertificateFacts, certificate_facts, new_key
from nodewright.documents.files.file_store import write_atomically
from nodewright.model.errors import HostError

CLIENT, SERVER = "kubelet-client", "kubelet-server"


class CertificateStore:
    """The pairs of one purpose in a directory.

    Follows: v1.36, client-go/util/certificate/certificate_store.go, fileStore.
    Departs: the link is replaced in one step, so that it is never missing.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory, self._prefix = directory, prefix

    @property
    def path(self) -> Path:
        """The path of the current certificate and key."""
        return self._directory / f"{self._prefix}-current.pem"

    def current(self) -> CertificateFacts | None:
        """What the current certificate says; None: there is none, or it cannot be read."""
        try:
            return certificate_facts(self.path.read_bytes())
        except OSError:
            return None

    def update(self, certificate: bytes, key: bytes) -> CertificateFacts:
        """Makes a pair the current one, and forgets the pending key.

        Errors: HostError, also where the pair does not match.
        """
        pair = certificate.rstrip() + b"\n" + key
        facts = certificate_facts(pair)
        if facts is None:
            raise HostError("store a certificate in", str(self._directory), "it does not belong to the key")
        moment = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime())
        path = self._directory / f"{self._prefix}-{moment}.pem"
        self._make_directory()
        if os.path.lexists(self.path) and not self.path.is_symlink():
            raise HostError("replace", str(self.path), "it is no symbolic link")
        write_atomically(path, pair)
        updated = self._directory / f"{self._prefix}-updated.pem"
        try:
            updated.unlink(missing_ok=True)
            updated.symlink_to(path.absolute())
            updated.replace(self.path)
        except OSError as error:
            raise HostError("replace", str(self.path), error.strerror or str(error)) from None
        self.forget_pending_key()
        return facts

    def pending_key(self) -> bytes:
        """The key for the next certificate: after an interruption the same one, so that its request is found again.

        Errors: HostError.
        """
        try:
            return self._pending_path.read_bytes()
        except OSError:
            key = new_key()
            self._make_directory()
            write_atomically(self._pending_path, key)
            return key

    def forget_pending_key(self) -> None:
        """Has the next request made with a new key."""
        with suppress(OSError):
            self._pending_path.unlink(missing_ok=True)

    @property
    def _pending_path(self) -> Path:
        return self._directory / f"{self._prefix}.key.tmp"

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError("make", os.fspath(self._directory), error.strerror or str(error)) from None
