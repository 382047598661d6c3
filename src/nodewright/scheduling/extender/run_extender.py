"""Runs the extender: connects to the cluster, follows nodes, pods and exports, and serves the calls."""

import asyncio
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from nodewright.cluster.client.access import AccessOptions
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ClusterAPI, api_path
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.exports.export_places import ExportPlaces
from nodewright.cluster.serving.access import Authorizer, Grants, TokenFile
from nodewright.cluster.serving.http_server import (
    ListenAddress,
    TLSContextSource,
    log_to_stderr,
    serve_network,
)
from nodewright.cluster.serving.key_pair import KeyPair, ensure_key_pair
from nodewright.cluster.serving.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.cluster.serving.routes import AuthorizedRoute
from nodewright.cluster.serving.tls import ReloadingTLS, serving_tls
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised, stop_event
from nodewright.cluster.tasks.timing import Clock, HostClock
from nodewright.documents.files.process_tuning import ShortCollections
from nodewright.documents.output.terminal import YES, print_log_line
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.scheduling.extender.cluster_feed import ClusterFeed
from nodewright.scheduling.extender.export_followers import ExportFollowers
from nodewright.scheduling.extender.extender_options import ExtenderOptions
from nodewright.scheduling.extender.extender_routes import (
    MAX_CALL_BYTES,
    NO_BINDING,
    ExtenderRoutes,
    extender_application,
)
from nodewright.scheduling.extender.extender_service import ApiBinder, ExtenderService, ServiceOptions
from nodewright.scheduling.extender.leader_lease import LeaderLease
from nodewright.scheduling.extender.pod_reviews import ClusterReviews, ReviewRoutes
from nodewright.scheduling.extender.scorers import scorer_of
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster


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
        service_options = ServiceOptions(
            strict=options.strict,
            fails_open=fails_open,
            scorer=scorer,
            scheduler_names=options.scheduler_name,
        )
        self.service = ExtenderService(cluster, feed, ApiBinder(api), clock, service_options)
        self.service.has_settled = lambda: followers.has_settled
        self.service.export_errors = followers.errors
        feed.export_max_age_s = options.export_max_age
        feed.export_places = ExportPlaces(options.export_port, options.export_base)
        feed.on_node, feed.on_refused_url = followers.follow, followers.refuse
        followers.on_error, feed.awaits_export = feed.export_failed, followers.awaits
        feed.on_compared = lambda compared: (
            print_log_line(compared.sentence) if compared.outcome.is_wrong else None
        )
        self._lease = lease = leader_lease(options, api, clock)
        if lease is not None:
            self.service.may_lead = lambda: lease.is_leader

    def tasks(self) -> Sequence[BackgroundTask]:
        """What runs beside the servers."""
        feed = self.service.feed
        tasks = [
            BackgroundTask("follow the nodes", feed.nodes.run),
            BackgroundTask("follow the pods", feed.pods.run),
            BackgroundTask("follow the disruption budgets", feed.budgets.run),
            BackgroundTask("predict nodes", feed.predict),
            BackgroundTask("judge nodes ahead", self.service.judge_ahead),
        ]
        if self._lease is not None:
            tasks.append(BackgroundTask("hold the lease", self._lease.run))
        return tasks


async def open_process(stack: AsyncExitStack, options: ExtenderOptions, clock: Clock) -> ExtenderProcess:
    """The parts of an extender, until the stack is closed.

    Errors: InputError with the faults of the options.
    """
    api = await open_api(stack, options)
    cluster = TrackedCluster()
    followers = await stack.enter_async_context(ExportFollowers(export_access(options), cluster, clock))
    followers.log = print_log_line
    feed = ClusterFeed(api, cluster, clock)
    for reflector in feed.reflectors:
        reflector.record_event = log_event
    return ExtenderProcess(options, api, followers, feed, clock)


def export_access(options: ExtenderOptions) -> PeerAccess:
    """How exporters are reached."""
    return PeerAccess(
        authority=options.export_ca_file,
        certificate=options.export_client_certificate,
        key=options.export_client_key,
        token_file=options.export_token_file,
    )


def token_warning(options: ExtenderOptions) -> str:
    """What is not safe about the connections to exporters; empty: nothing."""
    return export_access(options).warning("exporters", "--export-ca-file")


async def open_api(stack: AsyncExitStack, options: ExtenderOptions) -> ApiClient:
    """The API server, until the stack is closed.

    Errors: InputError.
    """
    access = load_access(AccessOptions(kubeconfig=options.kubeconfig, context=options.context), os.environ)
    return await stack.enter_async_context(ApiClient(access))


def leader_lease(options: ExtenderOptions, api: ClusterAPI, clock: Clock) -> LeaderLease | None:
    """The lease by which one of several extenders leads; None without ``--leader-elect``."""
    if not options.leader_elect:
        return None
    namespace, _, name = options.lease.partition("/")
    path = api_path("/apis/coordination.k8s.io/v1", "namespaces", namespace, "leases", name)
    lease = LeaderLease(api, path, f"{platform.node()}_{os.getpid()}", clock)
    lease.log = print_log_line
    return lease


async def run_extender(options: ExtenderOptions) -> int:
    """Serves until the process is asked to stop.

    Errors: InputError with the faults of the options; HostError for addresses that cannot be used.
    """
    log_to_stderr()
    ShortCollections(generation=1).install()
    clock, stop = HostClock(), stop_event()
    security = server_tls(options), call_authorizer(options)
    if warning := token_warning(options):
        print_log_line(warning)
    async with AsyncExitStack() as stack:
        process = await open_process(stack, options, clock)
        bound = await serve_extender(stack, options, process.service, security)
        scheme = "http" if security[0] is None else "https"
        verbs = "/prioritize and /preempt" if security[1] is None else "/prioritize, /preempt and /bind"
        print_log_line(f"schedulers call {scheme}://{bound}/filter, {verbs}")
        if security[1] is None:
            print_log_line(f"warning: {NO_BINDING}")
        async with running(process.tasks(), clock):
            await stop.wait()
    return YES


@asynccontextmanager
async def running(tasks: Sequence[BackgroundTask], clock: Clock) -> AsyncIterator[None]:
    """Runs the tasks beside what is done within this context; their failures are logged."""
    futures = [asyncio.ensure_future(run_supervised(task, log_event, clock)) for task in tasks]
    try:
        yield
    finally:
        for future in futures:
            future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)


async def serve_extender(
    stack: AsyncExitStack,
    options: ExtenderOptions,
    service: ExtenderService,
    security: tuple[ReloadingTLS | None, Authorizer | None],
) -> ListenAddress:
    """Serves calls, health and metrics until the stack is closed; the address of calls.

    Errors: HostError if an address is in use.
    """
    tls, authorizer = security
    routes = ExtenderRoutes(service, binds=authorizer is not None)
    refusals = RefusalLog(print_log_line)

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
        return await stack.enter_async_context(
            serve_network(app, ListenAddress.parse(text), context, refusals)
        )

    await serve(routes.health_routes(), options.health_listen, None, None)
    context = None if tls is None else partial(tls.context, print_log_line)
    reviews = ReviewRoutes(ClusterReviews(service).refusals, denies=options.deny_impossible_pods)
    entries = (*routes.call_routes(), *reviews.authorized_routes())
    return await serve(entries, options.listen, authorizer, context)


def call_authorizer(options: ExtenderOptions) -> Authorizer | None:
    """Who may call; None: every client that reaches the port, but none may bind pods.

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
    if options.tls_cert_file is not None and options.tls_private_key_file is not None:
        pair = KeyPair(options.tls_cert_file, options.tls_private_key_file)
    else:
        directory = Path(tempfile.gettempdir(), f"nodewright-extender-{os.getuid()}")
        pair = ensure_key_pair(directory, platform.node() or "localhost", ("127.0.0.1",))
    return serving_tls(pair, options.client_ca_file)


def log_event(event: RecordEvent) -> None:
    """Prints an event of a background task."""
    print_log_line(f"{event.reason}: {event.message}")
