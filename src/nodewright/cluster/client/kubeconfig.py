"""From options, environment and kubeconfig files, merged as kubectl merges them, to the access to one cluster."""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from nodewright.cluster.client.access import (
    AccessOptions,
    ClusterAccess,
    ExecPlugin,
    Impersonation,
    PEMSource,
    TLSSettings,
    UserCredentials,
    environment_proxy,
    proxy_rule,
    url_rule,
)
from nodewright.documents.files.regular_files import read_bounded
from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import parse_documents
from nodewright.model.errors import Fault, InputError
from nodewright.model.printable import address_text

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
_CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
MAX_FILE_BYTES = 16 << 20


# ---------------------------------------------------------------- files


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
    sections: dict[str, dict[str, Located[Any]]] = {"cluster": {}, "user": {}, "context": {}}
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
        for kind, located in sections.items():
            for entry in getattr(file, f"{kind}s"):
                place = f"{kind}s[{entry.name}].{kind}"
                located.setdefault(entry.name, Located(entry.name, getattr(entry, kind), path, place))
    if faults:
        raise InputError(faults)
    return Kubeconfig(tuple(sources), current_context, *sections.values())


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
    faults = [
        Fault(source=path, path=f"{plural}[{index}].name", value=name, error="Duplicate value", rule="")
        for plural in ("clusters", "users", "contexts")
        if (names := [entry.name for entry in getattr(file, plural)])
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if faults:
        raise InputError(faults)
    return file


# ---------------------------------------------------------------- access


def load_access(
    options: AccessOptions,
    environment: Mapping[str, str],
    *,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> ClusterAccess:
    """The access to the cluster that the options and the environment name.

    In this order: the file of `--kubeconfig`; the files of KUBECONFIG, merged; the service account of the pod in which
    this runs; `~/.kube/config`.

    Errors:  InputError with every fault of the chosen context, its cluster and its user.
    Follows: v1.36, client-go/tools/clientcmd/client_config.go, DirectClientConfig.ClientConfig; validation.go;
             controller-runtime, pkg/client/config/config.go, loadConfig for the order.
    Departs: a service account is preferred to `~/.kube/config`, but not with `--context`; a context without a cluster,
             a user that does not exist and a missing current context are faults, where kubectl goes on with
             localhost:8080 or without credentials.
    """
    if options.impersonate_groups and not options.impersonate:
        rule = "groups are impersonated together with a user: add --as"
        raise InputError([Fault(path="--as-group", value=list(options.impersonate_groups), rule=rule)])
    named = options.kubeconfig or environment.get("KUBECONFIG", "")
    if options.kubeconfig:
        kubeconfig = merged_kubeconfig([options.kubeconfig], may_be_missing=False)
    else:
        kubeconfig = merged_kubeconfig(named.split(os.pathsep), may_be_missing=True)
    if kubeconfig.is_empty and not options.kubeconfig and not options.context:
        access = _service_account_access(options, environment, service_account)
        if access is not None:
            return access
    home = Path(environment.get("HOME") or "~", ".kube", "config").expanduser()
    if not named:
        kubeconfig = merged_kubeconfig([str(home)], may_be_missing=True)
    if kubeconfig.is_empty:
        place = kubeconfig.source or (f"KUBECONFIG={named}" if named else str(home))
        rule = "names no cluster" if kubeconfig.sources else "no such file"
        remedy = "name a kubeconfig with --kubeconfig or KUBECONFIG"
        raise InputError([Fault(source=place, rule=f"{rule}: {remedy}")])
    return _context_access(kubeconfig, options, environment)


def context_names(options: AccessOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The contexts of the kubeconfig that the options and the environment name.

    Errors: InputError for a file that is no kubeconfig.
    """
    named = options.kubeconfig or environment.get("KUBECONFIG", "")
    home = Path(environment.get("HOME") or "~", ".kube", "config").expanduser()
    paths = named.split(os.pathsep) if named else [str(home)]
    return tuple(merged_kubeconfig(paths, may_be_missing=True).contexts)


def _service_account_access(
    options: AccessOptions, environment: Mapping[str, str], directory: Path
) -> ClusterAccess | None:
    """The access of a pod's service account; None outside a pod.

    Follows: v1.36, client-go/rest/config.go, InClusterConfig; tools/clientcmd/client_config.go,
             inClusterClientConfig.Possible and Namespace.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token, authority = directory / "token", directory / "ca.crt"
    if not host or not port or not token.is_file():
        return None
    try:
        account_namespace = (directory / "namespace").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        account_namespace = ""  # As kubectl: the namespace is then `default`.
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ClusterAccess(
        server=server,
        namespace=environment.get("POD_NAMESPACE") or account_namespace or "default",
        source=str(directory),
        credentials=UserCredentials(
            token_file=str(token),
            impersonation=Impersonation(user=options.impersonate, groups=options.impersonate_groups),
        ),
        tls=TLSSettings(authority=PEMSource(str(authority)) if authority.is_file() else PEMSource()),
        proxy=environment_proxy(server, environment),
        request_timeout=options.request_timeout,
    )


def _context_access(
    kubeconfig: Kubeconfig, options: AccessOptions, environment: Mapping[str, str]
) -> ClusterAccess:
    context = _context(kubeconfig, options.context)
    cluster = kubeconfig.clusters.get(context.section.cluster)
    user = kubeconfig.users.get(context.section.user)
    faults: list[Fault] = []
    if cluster is None:
        faults.append(_missing(context, "cluster", context.section.cluster, list(kubeconfig.clusters)))
    else:
        faults += _cluster_faults(cluster)
    if user is not None:
        faults += _user_faults(user)
    elif context.section.user:
        faults.append(_missing(context, "user", context.section.user, list(kubeconfig.users)))
    if cluster is None or faults:
        raise InputError(faults)
    server = _server_url(cluster.section.server)
    # As kubectl: credentials are sent over TLS only.
    is_secure = server.startswith("https://")
    impersonation = _impersonation(user.section if user else UserSection(), options)
    return ClusterAccess(
        server=server,
        namespace=context.section.namespace or "default",
        context=context.name,
        source=kubeconfig.source,
        credentials=_credentials(user, cluster, impersonation)
        if user and is_secure
        else UserCredentials(impersonation=impersonation),
        tls=_tls_settings(cluster, user) if is_secure else TLSSettings(),
        proxy=cluster.section.proxy_url or environment_proxy(server, environment),
        may_compress=not cluster.section.disable_compression,
        request_timeout=options.request_timeout,
    )


def _context(kubeconfig: Kubeconfig, name: str | None) -> Located[ContextSection]:
    path = "--context" if name else "current-context"
    name = name or kubeconfig.current_context
    if name and name in kubeconfig.contexts:
        return kubeconfig.contexts[name]
    names = _listed(list(kubeconfig.contexts))
    rule = (
        f"no context has this name; {names}"
        if name
        else f"is not set: choose a context with --context; {names}"
    )
    raise InputError([Fault(source=kubeconfig.source, path=path, value=name or None, rule=rule)])


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:10])
    more = len(names) - 10
    return f"there are: {shown}{f' and {more} more' if more > 0 else ''}" if names else "there are none"


def _missing(context: Located[ContextSection], field: str, name: str, names: list[str]) -> Fault:
    if not name:
        return context.fault(field, f"must be set; {_listed(names)}")
    return context.fault(field, f"no {field} has this name; {_listed(names)}", name)


def _cluster_faults(cluster: Located[ClusterSection]) -> list[Fault]:
    section = cluster.section
    faults = []
    if not section.server:
        faults.append(cluster.fault("server", "must be set"))
    elif rule := _url_rule(section.server):
        faults.append(cluster.fault("server", rule, address_text(section.server)))
    if section.proxy_url and (rule := proxy_rule(section.proxy_url)):
        faults.append(cluster.fault("proxy-url", rule, address_text(section.proxy_url)))
    faults += _pem_faults(cluster, "certificate-authority", section.certificate_authority)
    has_authority = bool(section.certificate_authority or section.certificate_authority_data)
    if section.insecure_skip_tls_verify and has_authority:
        rule = "must not be set together with a certificate authority"
        faults.append(cluster.fault("insecure-skip-tls-verify", rule, value=True))
    if section.certificate_authority and section.certificate_authority_data:
        rule = "must not be set together with certificate-authority-data"
        faults.append(cluster.fault("certificate-authority", rule, section.certificate_authority))
    return faults


def _url_rule(server: str) -> str:
    try:
        parts = urlsplit(_server_url(server))
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return url_rule(server, error)
    return "" if is_valid else "must be a URL that begins with https:// or http:// and names a host"


def _server_url(server: str) -> str:
    # client-go takes an address without a scheme for http, because it has not looked at the TLS settings yet.
    return (server if "://" in server else f"http://{server}").rstrip("/")


def _pem_faults(
    located: Located[ClusterSection] | Located[UserSection], field: str, path: str
) -> list[Fault]:
    if not path:
        return []
    absolute = located.file_path(path)
    try:
        with Path(absolute).open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        return [
            located.fault(field, f"cannot be read: {getattr(error, 'strerror', None) or error}", absolute)
        ]
    return []


def _user_faults(user: Located[UserSection]) -> list[Fault]:
    section = user.section
    faults = [
        *_pem_faults(user, "client-certificate", section.client_certificate),
        *_pem_faults(user, "client-key", section.client_key),
        *(_pem_faults(user, "tokenFile", section.token_file) if not section.token else ()),
    ]
    has_certificate = bool(section.client_certificate or section.client_certificate_data)
    if has_certificate and not (section.client_key or section.client_key_data):
        faults.append(user.fault("client-key", "must be set, or client-key-data, with a client certificate"))
    for field, path, data in (
        ("client-certificate", section.client_certificate, section.client_certificate_data),
        ("client-key", section.client_key, section.client_key_data),
    ):
        if path and data:
            faults.append(user.fault(field, f"must not be set together with {field}-data", path))
    if (section.token or section.token_file) and (section.username or section.password):
        faults.append(user.fault("username", "must not be set together with a token", section.username))
    if not section.impersonate:
        faults += [
            user.fault(field, "must be set together with `as`")
            for field, is_set in (
                ("as-uid", section.impersonate_uid),
                ("as-groups", section.impersonate_groups),
                ("as-user-extra", section.impersonate_extra),
            )
            if is_set
        ]
    if section.auth_provider is not None:
        rule = "credential plugins of kubectl itself are not supported: use `exec`"
        faults.append(user.fault("auth-provider.name", rule, section.auth_provider.name))
    return faults + (_exec_faults(user, section.exec) if section.exec is not None else [])


def _exec_faults(user: Located[UserSection], section: ExecSection) -> list[Fault]:
    faults = []
    if not section.command:
        faults.append(user.fault("exec.command", "must be set"))
    if section.api_version not in _EXEC_VERSIONS:
        rule = f"must be {' or '.join(_EXEC_VERSIONS)}"
        faults.append(user.fault("exec.apiVersion", rule, section.api_version or None))
    mode = section.interactive_mode
    # v1beta1 has a default.
    if mode not in _INTERACTIVE_MODES and (mode or section.api_version == _EXEC_VERSIONS[0]):
        faults.append(
            user.fault("exec.interactiveMode", f"must be {', '.join(_INTERACTIVE_MODES)}", mode or None)
        )
    if any(not variable.name for variable in section.env):
        faults.append(user.fault("exec.env", "each variable must have a name"))
    return faults


def _impersonation(section: UserSection, options: AccessOptions) -> Impersonation:
    return Impersonation(
        user=options.impersonate or section.impersonate,
        uid=section.impersonate_uid,
        groups=options.impersonate_groups or section.impersonate_groups,
        extra=tuple(section.impersonate_extra.items()),
    )


def _credentials(
    user: Located[UserSection], cluster: Located[ClusterSection], impersonation: Impersonation
) -> UserCredentials:
    section = user.section
    has_own = bool(section.token or section.token_file or section.username or section.client_certificate)
    # A plugin is asked only if the user has no other credentials.
    uses_plugin = section.exec is not None and not has_own and not section.client_certificate_data
    return UserCredentials(
        token=section.token.strip(),
        token_file=user.file_path(section.token_file),
        username=section.username,
        password=section.password,
        exec_plugin=_exec_plugin(user, section.exec, cluster) if uses_plugin and section.exec else None,
        impersonation=impersonation,
    )


def _exec_plugin(
    user: Located[UserSection], section: ExecSection, cluster: Located[ClusterSection]
) -> ExecPlugin:
    # Only a command with a separator is a path; others are looked up in PATH.
    command = user.file_path(section.command) if os.sep in section.command else section.command
    return ExecPlugin(
        command=command,
        arguments=section.args,
        environment=tuple((variable.name, variable.value) for variable in section.env),
        api_version=section.api_version,
        install_hint=section.install_hint,
        interactive_mode=section.interactive_mode or "IfAvailable",
        cluster_info=_cluster_info(cluster) if section.provide_cluster_info else b"",
    )


def _cluster_info(cluster: Located[ClusterSection]) -> bytes:
    """The cluster as plugins receive it.

    Errors:  InputError for a certificate authority that cannot be read.
    Follows: v1.36, client-go/pkg/apis/clientauthentication/v1/types.go, Cluster.
    """
    section = cluster.section
    authority = _pem(
        cluster, "certificate-authority", section.certificate_authority, section.certificate_authority_data
    )
    extension = next((each.extension for each in section.extensions if each.name == _CLUSTER_EXTENSION), None)
    members = {
        "server": section.server,
        "tls-server-name": section.tls_server_name,
        "insecure-skip-tls-verify": section.insecure_skip_tls_verify,
        "certificate-authority-data": authority.content() if authority else b"",
        "proxy-url": section.proxy_url,
        "disable-compression": section.disable_compression,
        "config": extension,
    }
    return msgspec.json.encode({name: value for name, value in members.items() if value})


def _pem(
    located: Located[ClusterSection] | Located[UserSection], field: str, path: str, data: str
) -> PEMSource:
    return PEMSource(located.file_path(path), located.data(f"{field}-data", data) if data else b"")


def _tls_settings(cluster: Located[ClusterSection], user: Located[UserSection] | None) -> TLSSettings:
    section = cluster.section
    account = user.section if user else UserSection()
    certificate = key = PEMSource()
    if user is not None:
        certificate = _pem(
            user, "client-certificate", account.client_certificate, account.client_certificate_data
        )
        key = _pem(user, "client-key", account.client_key, account.client_key_data) if certificate else key
    return TLSSettings(
        authority=_pem(
            cluster,
            "certificate-authority",
            section.certificate_authority,
            section.certificate_authority_data,
        ),
        is_verified=not section.insecure_skip_tls_verify,
        server_name=section.tls_server_name,
        client_certificate=certificate,
        client_key=key,
    )
