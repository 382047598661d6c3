"""What runs an agent's containers: plain processes of this machine, or a runtime behind CRI."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nodewright.agent.compose import ContainerComposer, ProcessComposer
from nodewright.agent.composing import Site
from nodewright.agent.images import ImageKeeper
from nodewright.agent.pull_secrets import PullSecrets
from nodewright.agent.shelf import Shelf
from nodewright.agent.values import Tell
from nodewright.cli.agent_node import host_address
from nodewright.cli.agent_settings import Settings
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.node.config import NodeConfig
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.errors import Fault, InputError, WorldError
from nodewright.world.mounts import KernelMounts
from nodewright.world.ports import Clock, ContainerRuntime, ImageStore, RuntimeFacts
from nodewright.world.processes.runtime import ProcessRuntime
from nodewright.world.volumes import Volumes

_UNIX = "unix://"
_ASKED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What containers are run with."""

    runtime: ContainerRuntime
    composer: ProcessComposer | ContainerComposer
    images: ImageStore | None = None
    image_keeper: ImageKeeper | None = None


def log_root(told: Settings) -> Path:
    """Where the logs of all pods are."""
    return told.root_dir / "logs"


def machinery(
    told: Settings,
    config: NodeConfig,
    shelf: Shelf,
    parts: tuple[CgroupFS, Clock, Callable[[Tell], None]],
) -> Machinery:
    """What the command line wants containers to be run with.

    Errors: InputError for an endpoint that is none; WorldError.
    """
    cgroups, clock, tell = parts
    kubelet = config.parts.kubelet
    site = _site(told, config, kubelet)
    pods = told.root_dir / "volumes"
    if told.endpoint is None:
        runtime = ProcessRuntime(told.root_dir / "containers", cgroups)
        return Machinery(runtime=runtime, composer=ProcessComposer(site, Volumes(pods, None), shelf))
    if not told.endpoint.removeprefix(_UNIX).startswith("/"):
        raise _endpoint_fault(told, "unix:///PATH is wanted")
    try:
        from nodewright.world.cri import Channel, CRIImages, CRIRuntime  # noqa: PLC0415 - 20 MiB, if it is not used
    except ImportError as error:
        raise _endpoint_fault(told, f"{error}: pip install 'nodewright[agent]'") from error
    channel = Channel(told.endpoint)
    images = CRIImages(channel)
    keeper = ImageKeeper.of(images, clock, tell, kubelet, PullSecrets(shelf, told.root_dir, tell))
    composer = ContainerComposer(site, Volumes(pods, KernelMounts()), shelf, keeper.ensure)
    # Whoever has another directory is another agent, and its pods are none of ours.
    containers = CRIRuntime(
        channel,
        owner=str(told.root_dir),
        handlers=lambda: {name: one.handler for name, one in shelf.runtimes().items()},
    )
    return Machinery(runtime=containers, composer=composer, images=images, image_keeper=keeper)


async def answering(
    parts: Machinery, clock: Clock, waits: Callable[[str], None]
) -> tuple[RuntimeFacts, Path | None]:
    """Which runtime it is, and where it keeps images; one that does not answer, or with garbage, is asked again.

    ``waits`` hears why, once for each reason.

    Errors:  WorldError where there is no runtime but ourselves.
    Departs: a kubelet ends.
    """
    if parts.images is None:
        return await parts.runtime.facts(), None
    said = ""
    while True:
        try:
            return await parts.runtime.facts(), Path(await parts.images.place())
        except WorldError as error:
            if str(error) != said:
                said = str(error)
                waits(said)
        await clock.sleep(_ASKED_EVERY_S)


def _endpoint_fault(told: Settings, rule: str) -> InputError:
    return InputError([Fault(source="--container-runtime-endpoint", value=told.endpoint, rule=rule)])


def _site(told: Settings, config: NodeConfig, kubelet: KubeletConfiguration) -> Site:
    address = host_address()
    return Site(
        host_ips=(address,) if address else ("127.0.0.1",),
        log_root=log_root(told),
        allocatable=config.resources.allocatable,
        cluster_domain=kubelet.cluster_domain,
        cluster_dns=kubelet.cluster_dns,
        resolv_conf=kubelet.resolver_config,
        has_stop_signals=config.gates["ContainerStopSignals"],
    )
