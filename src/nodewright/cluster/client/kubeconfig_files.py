"""Kubeconfig files: read, checked for form and merged as kubectl merges them."""

import base64
import binascii
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from nodewright.documents.files.regular_files import read_bounded
from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import parse_documents
from nodewright.model.errors import Fault, InputError

MAX_FILE_BYTES = 16 << 20


class NamedValue(msgspec.Struct, frozen=True, rename="kebab"):
    """A name with any value: a variable of an exec plugin or an extension."""

    name: str = ""
    value: str = ""
    extension: Any = None


class ClusterSection(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A cluster of a kubeconfig."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: tuple[NamedValue, ...] = ()


class ExecSection(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The exec plugin of a user."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NamedValue, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProviderSection(msgspec.Struct, frozen=True):
    """A credential plugin that was built into kubectl."""

    name: str = ""


class UserSection(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A user of a kubeconfig."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="as-user-extra")
    username: str = ""
    password: str = ""
    auth_provider: AuthProviderSection | None = None
    exec: ExecSection | None = None


class ContextSection(msgspec.Struct, frozen=True, kw_only=True):
    """A context of a kubeconfig."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: ClusterSection = ClusterSection()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: UserSection = UserSection()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: ContextSection = ContextSection()


class _KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


T = TypeVar("T")


class Located(msgspec.Struct, Generic[T], frozen=True):
    """A section of a kubeconfig, and where it stands."""

    name: str
    section: T
    source: str
    """The file."""
    path: str
    """The section's path in the file, e.g. `users[admin].user`."""

    def fault(self, field: str, rule: str, value: object = None) -> Fault:
        """A fault of a field of this section."""
        return Fault(source=self.source, path=f"{self.path}.{field}", value=value, rule=rule)

    def file_path(self, path: str) -> str:
        """The path that the section gives, which is relative to the kubeconfig's directory."""
        directory = os.path.dirname(self.source)  # noqa: PTH120 - lexical, as Go's filepath
        return os.path.abspath(os.path.join(directory, path)) if path else ""  # noqa: PTH100, PTH118 - as above

    def data(self, field: str, text: str) -> bytes:
        """The bytes that a field has in base64.

        Errors: InputError.
        """
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError([self.fault(field, f"must be base64: {error}")]) from None


class Kubeconfig(msgspec.Struct, frozen=True):
    """The kubeconfig files as one."""

    sources: tuple[str, ...]
    """The files that were read."""
    current_context: str = ""
    clusters: dict[str, Located[ClusterSection]] = {}
    users: dict[str, Located[UserSection]] = {}
    contexts: dict[str, Located[ContextSection]] = {}

    @property
    def source(self) -> str:
        """The files as text for messages."""
        return ":".join(self.sources)

    @property
    def is_empty(self) -> bool:
        """Whether the files define nothing."""
        return not (self.current_context or self.clusters or self.users or self.contexts)


def merged_kubeconfig(paths: Sequence[str], *, may_be_missing: bool) -> Kubeconfig:
    """The files as one: the first that names a cluster, a user, a context or the current context defines it.

    ``may_be_missing``: files that do not exist are left out.
    Errors:  InputError with the faults of all files.
    Follows: v1.36, client-go/tools/clientcmd/loader.go, ClientConfigLoadingRules.Load; api/v1/conversion.go.
    Departs: only the first document of a file counts, as there, but a second one is a fault.
    """
    faults: list[Fault] = []
    sources: list[str] = []
    current_context = ""
    clusters: dict[str, Located[ClusterSection]] = {}
    users: dict[str, Located[UserSection]] = {}
    contexts: dict[str, Located[ContextSection]] = {}
    for path in dict.fromkeys(path for path in paths if path):
        try:
            file = _read_file(path, may_be_missing=may_be_missing)
        except InputError as error:
            faults += error.faults
            continue
        if file is None:
            continue
        sources.append(path)
        current_context = current_context or file.current_context
        for cluster in _located(
            path, "clusters", "cluster", [(entry.name, entry.cluster) for entry in file.clusters]
        ):
            clusters.setdefault(cluster.name, cluster)
        for user in _located(path, "users", "user", [(entry.name, entry.user) for entry in file.users]):
            users.setdefault(user.name, user)
        for context in _located(
            path, "contexts", "context", [(entry.name, entry.context) for entry in file.contexts]
        ):
            contexts.setdefault(context.name, context)
    if faults:
        raise InputError(faults)
    return Kubeconfig(tuple(sources), current_context, clusters, users, contexts)


def _located(source: str, plural: str, field: str, sections: Sequence[tuple[str, T]]) -> Sequence[Located[T]]:
    return [Located(name, section, source, f"{plural}[{name}].{field}") for name, section in sections]


def _read_file(path: str, *, may_be_missing: bool) -> _KubeconfigFile | None:
    try:
        with Path(path).open("rb") as file:  # A pipe is a file of a shell's `<(...)`.
            content = read_bounded(file, MAX_FILE_BYTES, path)
    except FileNotFoundError as error:
        if may_be_missing:
            return None
        raise _unreadable(path, error) from None
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        raise _unreadable(path, error) from None
    documents = parse_documents(content, path, max_bytes=MAX_FILE_BYTES)
    if not documents:
        return _KubeconfigFile()
    if len(documents) > 1:
        raise InputError(
            [Fault(source=path, rule=f"a kubeconfig has one document, this file {len(documents)}")]
        )
    return _checked_file(documents[0].value, path)


def _unreadable(path: str, error: Exception) -> InputError:
    text = getattr(error, "strerror", None) or str(error)
    return InputError([Fault(source=path, rule=f"cannot be read: {text}")])


def _checked_file(document: Any, path: str) -> _KubeconfigFile:
    if not isinstance(document, dict):
        raise InputError([Fault(source=path, rule="a kubeconfig is a mapping")])
    faults = [
        Fault(source=path, path=field, value=document[field], rule=f"must be {expected} in a kubeconfig")
        for field, expected in (("kind", "Config"), ("apiVersion", "v1"))
        if document.get(field) not in (None, "", expected)
    ]
    if faults:
        raise InputError(faults)
    try:
        file = decode(document, _KubeconfigFile)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        raise InputError([Fault(source=path, path=field, rule=text)]) from None
    names = {
        "clusters": [entry.name for entry in file.clusters],
        "users": [entry.name for entry in file.users],
        "contexts": [entry.name for entry in file.contexts],
    }
    faults = [
        Fault(source=path, path=f"{plural}[{index}].name", value=name, error="Duplicate value", rule="")
        for plural, list_of_names in names.items()
        for index, name in enumerate(list_of_names)
        if name in list_of_names[:index]
    ]
    if faults:
        raise InputError(faults)
    return file
