"""The sources of pods that the command line and the configuration name."""

from collections.abc import Coroutine, Iterator
from typing import Any

from nodewright.agent.sources import Listener, watch_directory, watch_url
from nodewright.agent.values import PodsWanted, Source
from nodewright.cli.agent_settings import Settings, manifest_headers, static_path
from nodewright.model.kubelet_config import KubeletConfiguration

WATCHED = frozenset({Source.FILE, Source.HTTP, Source.WORKLOAD})


def sources(
    told: Settings, kubelet: KubeletConfiguration, listener: Listener
) -> Iterator[Coroutine[Any, Any, None]]:
    """Who tells of pods until cancelled; sources that nobody named have none, whatever they had before.

    Errors: InputError.
    """
    directories = {Source.FILE: static_path(told, kubelet), Source.WORKLOAD: told.workload_dir}
    for source, directory in directories.items():
        if directory is None:
            listener.see(PodsWanted(source, ()))
        else:
            period_s = kubelet.file_check_frequency.nanoseconds / 10**9
            yield watch_directory(directory, source, listener, period_s)
    url = told.manifest_url or kubelet.static_pod_url
    if url:
        headers = manifest_headers(told, kubelet)
        yield watch_url(url, headers, listener, kubelet.http_check_frequency.nanoseconds / 10**9)
    else:
        listener.see(PodsWanted(Source.HTTP, ()))
