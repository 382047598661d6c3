"""With which credentials the agent reaches its cluster: a kubeconfig, or a certificate that it has issued for itself."""

import ipaddress
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from nodewright.agent.assembly.agent_settings import AgentSettings, NodeCredentials
from nodewright.agent.assembly.runtime_setup import RunningParts
from nodewright.agent.member.certificates import (
    CLIENT,
    CLIENT_SIGNER,
    SERVER,
    SERVING_SIGNER,
    CertificateRotation,
    CertificateStore,
    CertificateSubject,
    certificate_facts,
    expiry_s,
)
from nodewright.cluster.client.access import (
    AccessOptions,
    ClusterAccess,
    PEMSource,
    TLSSettings,
    UserCredentials,
)
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.tasks.supervision import BackgroundTask
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.file_store import write_atomically
from nodewright.model.errors import InputError

_GROUP = "system:nodes"


def node_credentials(settings: AgentSettings, *, rotates: bool, now_s: float) -> NodeCredentials:
    """The credentials; ``rotates`` is `rotateCertificates`.

    Writes the kubeconfig for the certificate that is going to be issued, if there is no valid one.

    Follows: v1.36, cmd/kubelet/app/server.go, buildKubeletClientConfig; kubelet/certificate/bootstrap/bootstrap.go,
        LoadClientConfig, isClientConfigStillValid.
    Departs: without rotateCertificates, too, the agent runs while it waits for its first certificate; users with other
        credentials than a certificate keep them.
    Errors:  InputError with the faults of the kubeconfigs; HostError.
    """
    kubeconfig, bootstrap = settings.kubeconfig, settings.bootstrap_kubeconfig
    assert kubeconfig is not None
    store = CertificateStore(settings.certificate_dir, CLIENT)
    access = _valid_access(kubeconfig, now_s) if bootstrap else _load(kubeconfig)
    if access is None:
        assert bootstrap
        base = _load(bootstrap)
        issued = _with_certificate(base, store.path)
        _write_kubeconfig(Path(kubeconfig), issued)
        return NodeCredentials(
            access=issued, is_issued=True, is_renewed=rotates, bootstrap_kubeconfig=bootstrap
        )
    if not rotates or not access.tls.client_certificate:
        return NodeCredentials(access=access)
    is_own = access.tls.client_certificate.path == os.fspath(store.path)
    if not is_own and store.current() is None:
        store.update(access.tls.client_certificate.content(), access.tls.client_key.content())
    return NodeCredentials(
        access=_with_certificate(access, store.path),
        is_issued=True,
        is_renewed=True,
        is_forced=not is_own,
        bootstrap_kubeconfig=bootstrap or "",
    )


def with_certificate_tasks(
    settings: AgentSettings,
    credentials: NodeCredentials,
    member: tuple[tuple[BackgroundTask, ...], Callable[[], dict[str, Any] | None]],
    parts: RunningParts,
    metric_sources: list[Callable[[], str]],
) -> tuple[BackgroundTask, ...]:
    """The tasks of the node, which wait for its first certificate, and those that request certificates.

    ``metric_sources`` gets the metrics of the certificates.
    """
    (tasks, node), (loop, event_recorder, _) = member, parts
    rotations = []
    client = client_rotation(settings, credentials, loop.state.node.config.facts.name, loop.clock)
    if client is not None:
        rotations.append(BackgroundTask("renew the client certificate", client.run))
        client.record_event = event_recorder.record
        metric_sources.append(client.metrics_text)
        tasks = tuple(
            BackgroundTask(task.name, partial(_run_with_certificate, client, task.run)) for task in tasks
        )
    if loop.state.node.config.parts.kubelet.server_tls_bootstrap and settings.kubelet_api:
        serving = serving_rotation(settings, credentials.access, node, loop.clock)
        serving.record_event = event_recorder.record
        metric_sources.append(serving.metrics_text)
        rotations.append(BackgroundTask("renew the serving certificate", serving.run))
    return (*rotations, *tasks)


async def _run_with_certificate(
    client: CertificateRotation, routine: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    await client.has_certificate.wait()
    await routine()


def client_rotation(
    settings: AgentSettings, credentials: NodeCredentials, node_name: str, clock: Clock
) -> CertificateRotation | None:
    """What keeps the client certificate valid; None: it is not issued by the cluster."""
    if not credentials.is_issued:
        return None

    def open_api(is_valid: bool) -> ApiClient:  # noqa: FBT001 - as the rotation calls it
        if is_valid or not credentials.bootstrap_kubeconfig:
            return ApiClient(credentials.access)
        # Read again: its token may have been replaced.
        return ApiClient(_load(credentials.bootstrap_kubeconfig))

    store = CertificateStore(settings.certificate_dir, CLIENT)
    rotation = CertificateRotation(store, CLIENT_SIGNER, open_api, clock)
    subject = CertificateSubject(f"system:node:{node_name}", (_GROUP,))
    rotation.subject = lambda: subject
    rotation.is_renewed, rotation.is_forced = credentials.is_renewed, credentials.is_forced
    return rotation


def serving_rotation(
    settings: AgentSettings,
    access: ClusterAccess,
    node: Callable[[], dict[str, Any] | None],
    clock: Clock,
) -> CertificateRotation:
    """What keeps the serving certificate valid for the addresses of the Node object.

    Follows: v1.36, kubelet/certificate/kubelet.go, NewKubeletServerCertificateManager, newGetTemplateFn.
    """
    store = CertificateStore(settings.certificate_dir, SERVER)
    rotation = CertificateRotation(store, SERVING_SIGNER, lambda _is_valid: ApiClient(access), clock)
    rotation.subject = lambda: serving_subject(node() or {})
    return rotation


def serving_subject(node: dict[str, Any]) -> CertificateSubject | None:
    """The subject of the serving certificate of a Node; None: its addresses are not known.

    Follows: v1.36, kubelet/certificate/kubelet.go, addressesToHostnamesAndIPs.
    """
    names, addresses = set[str](), set[str]()
    for entry in (node.get("status") or {}).get("addresses") or ():
        kind, text = entry.get("type"), str(entry.get("address") or "")
        if not text:
            continue
        if _is_address(text):
            addresses.update([text] if kind in ("Hostname", "ExternalIP", "InternalIP") else [])
        elif kind in ("Hostname", "ExternalDNS", "InternalDNS"):
            names.add(text)
    if not names and not addresses:
        return None
    name = f"system:node:{node['metadata']['name']}"
    return CertificateSubject(name, (_GROUP,), tuple(sorted(names)), tuple(sorted(addresses)))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _load(kubeconfig: str) -> ClusterAccess:
    return load_access(AccessOptions(kubeconfig=kubeconfig), os.environ)


def _valid_access(kubeconfig: str, now_s: float) -> ClusterAccess | None:
    """The access of a kubeconfig whose client certificate can be used; None: there is none."""
    if not Path(kubeconfig).exists():
        return None
    try:
        access = _load(kubeconfig)
        tls = access.tls
        certificate, key = tls.client_certificate.content(), tls.client_key.content()
    except (InputError, OSError):
        return None
    end_s = expiry_s(certificate)
    is_pair = certificate_facts(certificate + b"\n" + key) is not None
    return access if is_pair and end_s is not None and now_s < end_s else None


def _with_certificate(access: ClusterAccess, pair: Path) -> ClusterAccess:
    source = PEMSource(os.fspath(pair.absolute()))
    tls: TLSSettings = replace(access.tls, client_certificate=source, client_key=source)
    return replace(access, credentials=UserCredentials(), tls=tls)


def _write_kubeconfig(path: Path, access: ClusterAccess) -> None:
    """Errors: HostError."""
    tls = access.tls
    cluster: dict[str, Any] = {"server": access.server}
    if not tls.is_verified:
        cluster["insecure-skip-tls-verify"] = True
    if tls.authority.data:
        cluster["certificate-authority-data"] = tls.authority.data
    elif tls.authority.path:
        cluster["certificate-authority"] = tls.authority.path
    if tls.server_name:
        cluster["tls-server-name"] = tls.server_name
    user = {"client-certificate": tls.client_certificate.path, "client-key": tls.client_key.path}
    names = {"cluster": "default-cluster", "user": "default-auth", "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": user}],
        "contexts": [{"name": "default-context", "context": names}],
        "current-context": "default-context",
    }
    text = yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False)
    write_atomically(path, text.encode())
