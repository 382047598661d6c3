"""What does a container see of the world: variables, command, files of its volumes, names?"""

from nodewright.core.environment.expansion import expand, expanded
from nodewright.core.environment.handlers import concrete, probed_handler
from nodewright.core.environment.names import (
    PodDNS,
    PodName,
    aliased_hosts,
    managed_hosts,
    pod_dns,
    pod_name,
    resolv_text,
)
from nodewright.core.environment.payload import FileContent, payload
from nodewright.core.environment.surroundings import Lacking, Surroundings
from nodewright.core.environment.variables import command_and_args, static_command, sub_path, variables

__all__ = [
    "FileContent",
    "Lacking",
    "PodDNS",
    "PodName",
    "Surroundings",
    "aliased_hosts",
    "command_and_args",
    "concrete",
    "expand",
    "expanded",
    "managed_hosts",
    "payload",
    "pod_dns",
    "pod_name",
    "probed_handler",
    "resolv_text",
    "static_command",
    "sub_path",
    "variables",
]
