"""A pod's own name, the names of others that it knows without asking, and whom it asks for the rest."""

from collections.abc import Iterable, Mapping

import msgspec

from nodewright.model.objects import Pod
from nodewright.model.pod_settings import HostAlias

_LONGEST_HOSTNAME = 63
_MOST_NAMESERVERS, _MOST_SEARCHES, _LONGEST_SEARCHES, _LONGEST_DOMAIN = 3, 32, 2048, 253

_MANAGED = "# Kubernetes-managed hosts file.\n"
_MANAGED_ON_HOST = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


class PodName(msgspec.Struct, frozen=True):
    """What a pod is called in its own hosts file."""

    hostname: str
    domain: str = ""


def pod_name(pod: Pod, cluster_domain: str) -> PodName:
    """A pod's hostname, and its domain if it has one.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, GeneratePodHostNameAndDomain.

    >>> pod_name(Pod(), "cluster.local").domain
    ''
    """
    spec = pod.spec
    if spec.hostname_override is not None:
        return PodName(_short(spec.hostname_override))
    domain = ""
    if spec.subdomain:
        domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"
    return PodName(_short(spec.hostname or pod.metadata.name), domain)


def _short(hostname: str) -> str:
    if len(hostname) <= _LONGEST_HOSTNAME:
        return hostname
    return hostname[:_LONGEST_HOSTNAME].rstrip("-.")


def managed_hosts(name: PodName, ips: Iterable[str], aliases: Iterable[HostAlias]) -> str:
    """The hosts file of a pod with a network of its own.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, managedHostsFileContent.
    """
    names = f"{name.hostname}.{name.domain}\t{name.hostname}" if name.domain else name.hostname
    own = "".join(f"{ip}\t{names}\n" for ip in ips)
    return f"{_MANAGED}{_LOCAL}{own}{_aliases(aliases)}"


def aliased_hosts(of_machine: str, aliases: Iterable[HostAlias]) -> str:
    """The hosts file of a pod in the machine's network: the machine's, and what the pod adds.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, nodeHostsFileContent.
    """
    return f"{_MANAGED_ON_HOST}{of_machine}{_aliases(aliases)}"


def _aliases(aliases: Iterable[HostAlias]) -> str:
    lines = [f"{one.ip}\t" + "\t".join(one.hostnames) + "\n" for one in aliases]
    return "".join(("\n# Entries added by HostAliases.\n", *lines)) if lines else ""


# ---------------------------------------------------------------- whom to ask


class PodDNS(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a pod asks for names."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """What was left out or replaced, in the kubelet's words."""


def pod_dns(pod: Pod, of_machine: str | None, cluster_dns: tuple[str, ...], cluster_domain: str) -> PodDNS:
    """Whom a pod asks, by its policy.

    ``of_machine`` is the text of the machine's resolv.conf; None: pods ask nobody but themselves.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, GetPodDNS.
    Departs: options keep their order, where the kubelet draws one.
    """
    policy = _policy(pod)
    told: tuple[str, ...] = ()
    dns = read_resolv(of_machine or "")
    if policy == "None":
        dns = PodDNS()
    elif policy == "ClusterFirst" and cluster_dns:
        dns = PodDNS(servers=cluster_dns, searches=_searches(pod, dns, cluster_domain), options=("ndots:5",))
    else:
        if policy == "ClusterFirst":
            told = (_without_cluster(pod),)
        if of_machine is None:
            dns = PodDNS(servers=("127.0.0.1",), searches=(".",))
    return _within_limits(_with_own(pod, dns), told)


def _policy(pod: Pod) -> str:
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "ClusterFirstWithHostNet":
        return "ClusterFirst"
    return "Default" if policy == "ClusterFirst" and pod.spec.host_network else policy


def _searches(pod: Pod, dns: PodDNS, domain: str) -> tuple[str, ...]:
    if not domain:
        return dns.searches
    ours = (f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain)
    return tuple(dict.fromkeys((*ours, *dns.searches)))


def _without_cluster(pod: Pod) -> str:
    where = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return (
        f'pod: "{where}". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
        '"ClusterFirst" policy. Falling back to "Default" policy.'
    )


def _with_own(pod: Pod, dns: PodDNS) -> PodDNS:
    own = pod.spec.dns_config
    if own is None:
        return dns
    options = dict(_option(one) for one in dns.options)
    options |= {one.name: one.value or "" for one in own.options}
    return PodDNS(
        servers=tuple(dict.fromkeys((*dns.servers, *own.nameservers))),
        searches=tuple(dict.fromkeys((*dns.searches, *own.searches))),
        options=tuple(f"{name}:{value}" if value else name for name, value in options.items()),
    )


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name, value


_NAMESERVERS_CUT = (
    "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
)
_SEARCHES_CUT = (
    "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
)


def _within_limits(dns: PodDNS, told: tuple[str, ...]) -> PodDNS:
    """What resolvers can take.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, formDNSConfigFitsLimits.
    """
    servers, searches = dns.servers[:_MOST_NAMESERVERS], dns.searches[:_MOST_SEARCHES]
    if servers != dns.servers:
        told += (f"{_NAMESERVERS_CUT}{' '.join(servers)}",)
    searches = tuple(one for one in searches if len(one) <= _LONGEST_DOMAIN)
    while len(" ".join(searches)) > _LONGEST_SEARCHES:
        searches = searches[:-1]
    if searches != dns.searches:
        told += (f"{_SEARCHES_CUT}{' '.join(searches)}",)
    return PodDNS(servers=servers, searches=searches, options=dns.options, told=told)


def read_resolv(text: str) -> PodDNS:
    r"""Whom a resolv.conf names.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, parseResolvConf.

    >>> read_resolv("nameserver 10.0.0.1\nsearch a.example. .\noptions ndots:2 ndots:3").searches
    ('a.example',)
    """
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: dict[str, str] = {}
    for line in text.split("\n"):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "nameserver":
            servers += words[1:2]
        elif words[0] == "search":
            searches = tuple(one.removesuffix(".") for one in words[1:] if one != ".")
        elif words[0] == "options":
            options |= {one.partition(":")[0]: one for one in words[1:]}
    return PodDNS(servers=tuple(servers), searches=searches, options=tuple(options.values()))


def resolv_text(dns: PodDNS) -> str:
    """The same as a resolv.conf, as runtimes write it."""
    lines: Mapping[str, tuple[str, ...]] = {"search": dns.searches, "options": dns.options}
    found = [f"{name} {' '.join(words)}" for name, words in lines.items() if words]
    found += [f"nameserver {one}" for one in dns.servers]
    return "".join(f"{line}\n" for line in found)
