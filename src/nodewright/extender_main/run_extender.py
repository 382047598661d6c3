"""Runs the extender: connects to the cluster, follows nodes, pods and exports, and serves the calls."""

import asyncio
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from nodewright.agent.effects import RecordEvent
from nodewright.agent.supervision import BackgroundTask, run_supervised
from nodewright.api.access import Authorizer, Grants
from nodewright.api.http_server import ListenAddress, TLSContextSource, log_to_stderr, serve_network
from nodewright.api.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.api.review_routes import ReviewRoutes
from nodewright.api.routes import AuthorizedRoute
from nodewright.api.tls import ReloadingTLS
from nodewright.cluster.access import AccessOptions
from nodewright.cluster.api_client import ApiClient
from nodewright.cluster.kubeconfig import load_access
from nodewright.cluster_node.api_access import ApiAccess
from nodewright.cluster_node.cluster_api import ClusterAPI
from nodewright.errors import Fault, InputError
from nodewright.extender_main.cluster_feed import ClusterFeed
from nodewright.extender_main.export_followers import ExportAccess, ExportFollowers
from nodewright.extender_main.extender_options import ExtenderOptions
from nodewright.extender_main.extender_routes import MAX_CALL_BYTES, ExtenderRoutes, extender_application
from nodewright.extender_main.extender_service import ApiBinder, ExtenderService, ServiceOptions
from nodewright.extender_main.leader_lease import LeaderLease
from nodewright.extender_main.pod_reviews import ClusterReviews
from nodewright.extender_main.scorers import scorer_of
from nodewright.host.clock import HostClock
from nodewright.host.key_pair import KeyPair, ensure_key_pair
from nodewright.host.ports import Clock
from nodewright.host.stop_signal import stop_event
from nodewright.host.tokens import TokenFile
from nodewright.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.output.exit_codes import YES
from nodewright.output.terminal import print_log_line
from nodewright.scheduling.tracked_cluster import TrackedCluster


class ExtenderProcess:
    """The parts of an extender, and their tasks."""

    def __init__(
        self,
        options: ExtenderOptions,
        api: ClusterAPI,
        followers: ExportFollowers,
        feed: ClusterFeed,
        clock: Clock,
    ) -> None:
        cluster = followers.cluster
        fails_open = options.fail == "open"
        scorer = scorer_of(options.scorer, options.policies, cluster)
        service_options = ServiceOptions(strict=options.strict, fails_open=fails_open, scorer=scorer)
        self.service = ExtenderService(cluster, feed, ApiBinder(api), clock, service_options)
        self.service.has_settled = lambda: followers.has_settled
        self._lease: LeaderLease | None = None
        feed.export_max_age_s, feed.export_port = options.export_max_age, options.export_port
        feed.on_node, followers.on_error = followers.follow, feed.export_failed
        feed.on_compared = lambda compared: (
            print_log_line(compared.sentence) if compared.outcome.is_wrong else None
        )
        if options.leader_elect:
            namespace, _, name = options.lease.partition("/")
            path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
            identity = f"{platform.node()}_{os.getpid()}"
            self._lease = LeaderLease(api, path, identity, clock)
            self._lease.log = print_log_line
            self.service.may_lead = lambda: self._lease is not None and self._lease.is_leader

    def tasks(self) -> Sequence[BackgroundTask]:
        """What runs beside the servers."""
        feed = self.service.feed
        tasks = [
            BackgroundTask("follow the nodes", feed.nodes.run),
            BackgroundTask("follow the pods", feed.pods.run),
            BackgroundTask("predict nodes", feed.predict),
        ]
        if self._lease is not None:
            tasks.append(BackgroundTask("hold the lease", self._lease.run))
        return tasks


async def run_extender(options: ExtenderOptions) -> int:
    """Serves until the process is asked to stop.

    Errors: InputError with the faults of the options; HostError for addresses that cannot be used.
    """
    log_to_stderr()
    clock, stop = HostClock(), stop_event()
    access = load_access(AccessOptions(kubeconfig=options.kubeconfig, context=options.context), os.environ)
    tls, authorizer = server_tls(options), call_authorizer(options)
    export_access = ExportAccess(
        authority=options.export_ca_file,
        certificate=options.export_client_certificate,
        key=options.export_client_key,
        token_file=options.export_token_file,
    )
    async with AsyncExitStack() as stack:
        api = ApiAccess(await stack.enter_async_context(ApiClient(access)))
        cluster = TrackedCluster()
        followers = await stack.enter_async_context(ExportFollowers(export_access, cluster, clock))
        followers.log = print_log_line
        feed = ClusterFeed(api, cluster, clock)
        process = ExtenderProcess(options, api, followers, feed, clock)
        bound = await serve_extender(stack, options, process.service, followers, (tls, authorizer))
        scheme = "http" if tls is None else "https"
        print_log_line(f"schedulers call {scheme}://{bound}/filter, /prioritize, /preempt and /bind")
        running = [asyncio.ensure_future(run_supervised(task, _log_event, clock)) for task in process.tasks()]
        try:
            await stop.wait()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return YES


async def serve_extender(
    stack: AsyncExitStack,
    options: ExtenderOptions,
    service: ExtenderService,
    followers: ExportFollowers,
    security: tuple[ReloadingTLS | None, Authorizer | None],
) -> ListenAddress:
    """Serves calls, health and metrics until the stack is closed; the address of calls.

    Errors: HostError if an address is in use.
    """
    tls, authorizer = security
    routes, refusals = ExtenderRoutes(service, followers.errors), RefusalLog(print_log_line)

    async def serve(
        entries: tuple[AuthorizedRoute, ...],
        text: str,
        access: Authorizer | None,
        context: TLSContextSource | None,
    ) -> ListenAddress:
        app = AuthMiddleware(
            extender_application(entries),
            entries,
            access,
            refusals=refusals,
            requests=RequestMetrics(),
            max_body_bytes=MAX_CALL_BYTES,
        )
        return await stack.enter_async_context(serve_network(app, listen_address(text), context, refusals))

    await serve(routes.health_routes(), options.health_listen, None, None)
    context = None if tls is None else partial(tls.context, print_log_line)
    reviews = ReviewRoutes(ClusterReviews(service).finding, denies=options.deny_impossible_pods)
    entries = (*routes.call_routes(), *reviews.authorized_routes())
    return await serve(entries, options.listen, authorizer, context)


def call_authorizer(options: ExtenderOptions) -> Authorizer | None:
    """Who may call; None: every client that reaches the port.

    Errors: InputError.
    """
    if options.client_ca_file is None and options.token_auth_file is None:
        return None
    tokens = None if options.token_auth_file is None else TokenFile(options.token_auth_file)
    return Authorizer(Grants(), tokens, allows_all=True)


def server_tls(options: ExtenderOptions) -> ReloadingTLS | None:
    """The server's certificate and the authorities of its clients; None: without TLS.

    Errors: InputError, HostError.
    """
    if (options.tls_cert_file is None) != (options.tls_private_key_file is None):
        raise InputError(
            [Fault(source="--tls-cert-file", rule="needs --tls-private-key-file, and the reverse")]
        )
    if options.insecure_http:
        if options.client_ca_file is not None or options.token_auth_file is not None:
            rule = "callers cannot be identified without TLS: not with --client-ca-file or --token-auth-file"
            raise InputError([Fault(source="--insecure-http", rule=rule)])
        return None
    config = KubeletConfiguration()
    if options.client_ca_file is not None:
        x509 = replace(config.authentication.x509, client_ca_file=str(options.client_ca_file))
        config = replace(config, authentication=replace(config.authentication, x509=x509))
    if options.tls_cert_file is not None and options.tls_private_key_file is not None:
        return ReloadingTLS(KeyPair(options.tls_cert_file, options.tls_private_key_file), config)
    directory = Path(tempfile.gettempdir(), f"nodewright-extender-{os.getuid()}")
    return ReloadingTLS(ensure_key_pair(directory, platform.node() or "localhost", ("127.0.0.1",)), config)


def listen_address(text: str) -> ListenAddress:
    """The address and port of a text.

    Errors: InputError.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port[:6]) <= 65535):
        raise InputError([Fault(source="--listen", value=text, rule="must be ADDRESS:PORT")])
    return ListenAddress(host.strip("[]"), int(port))


def _log_event(event: RecordEvent) -> None:
    print_log_line(f"{event.reason}: {event.message}")
