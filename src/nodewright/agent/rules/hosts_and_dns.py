"""A pod's hostname, hosts file and DNS configuration."""

from collections.abc import Iterable, Mapping

import msgspec

from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_spec_fields import HostAlias

_LONGEST_HOSTNAME, _LONGEST_FQDN = 63, 64
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


class PodHostname(msgspec.Struct, frozen=True):
    """The hostname of a pod and its domain (empty: none)."""

    hostname: str
    domain: str = ""


class OverlongHostname(msgspec.Struct, frozen=True):
    """A hostname with its domain that is longer than the kernel takes."""

    fqdn: str

    @property
    def message(self) -> str:
        """The kubelet's text."""
        return (
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {self.fqdn} is too long "
            f"({_LONGEST_FQDN} characters is the max, {len(self.fqdn)} characters requested)"
        )


def pod_hostname(pod: Pod, cluster_domain: str) -> PodHostname:
    """A pod's hostname, and its domain if it has one.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, GeneratePodHostNameAndDomain.

    >>> pod_hostname(Pod(), "cluster.local").domain
    ''
    """
    spec = pod.spec
    if spec.hostname_override is not None:
        return PodHostname(_short(spec.hostname_override))
    domain = ""
    if spec.subdomain:
        domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"
    return PodHostname(_short(spec.hostname or pod.metadata.name), domain)


def kernel_hostname(pod: Pod, name: PodHostname) -> str | OverlongHostname:
    """The hostname that the kernel of the pod has: with its domain if the pod sets setHostnameAsFQDN.

    Follows: v1.36, pkg/kubelet/util/util.go, GetNodenameForKernel.

    >>> kernel_hostname(Pod(), PodHostname("web", "t.default.svc.cluster.local"))
    'web'
    """
    if not name.domain or not pod.spec.set_hostname_as_fqdn:
        return name.hostname
    fqdn = f"{name.hostname}.{name.domain}"
    return OverlongHostname(fqdn) if len(fqdn) > _LONGEST_FQDN else fqdn


def _short(hostname: str) -> str:
    if len(hostname) <= _LONGEST_HOSTNAME:
        return hostname
    return hostname[:_LONGEST_HOSTNAME].rstrip("-.")


def managed_hosts_file(name: PodHostname, ips: Iterable[str], aliases: Iterable[HostAlias]) -> str:
    """The hosts file of a pod in its own network namespace.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, managedHostsFileContent.
    """
    names = f"{name.hostname}.{name.domain}\t{name.hostname}" if name.domain else name.hostname
    pod_entries = "".join(f"{ip}\t{names}\n" for ip in ips)
    return f"{_MANAGED}{_LOCAL}{pod_entries}{_aliases(aliases)}"


def node_hosts_file(node_entries: str, aliases: Iterable[HostAlias]) -> str:
    """The hosts file of a pod in the host network: the host's entries and the pod's hostAliases.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, nodeHostsFileContent.
    """
    return f"{_MANAGED_ON_HOST}{node_entries}{_aliases(aliases)}"


def _aliases(aliases: Iterable[HostAlias]) -> str:
    lines = [f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases]
    return "".join(("\n# Entries added by HostAliases.\n", *lines)) if lines else ""


# ---------------------------------------------------------------- DNS


class PodDNS(msgspec.Struct, frozen=True, kw_only=True):
    """The DNS configuration of a pod."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    """The kubelet's reasons and messages about omitted nameservers and searches, and a replaced policy."""


def pod_dns(
    pod: Pod, node_resolv_conf: str | None, cluster_dns: tuple[str, ...], cluster_domain: str
) -> PodDNS:
    """The DNS configuration of a pod by its dnsPolicy and dnsConfig.

    ``node_resolv_conf`` is the text of the node's resolv.conf; None: the policy Default gives 127.0.0.1 instead.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, GetPodDNS.
    Departs: options keep their order; the kubelet's order is random.
    """
    policy = _policy(pod)
    warnings: tuple[tuple[str, str], ...] = ()
    dns = parse_resolv_conf(node_resolv_conf or "")
    if policy == "None":
        dns = PodDNS()
    elif policy == "ClusterFirst" and cluster_dns:
        dns = PodDNS(servers=cluster_dns, searches=_searches(pod, dns, cluster_domain), options=("ndots:5",))
    else:
        if policy == "ClusterFirst":
            name = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
            warnings = ((MISSING_CLUSTER_DNS, f'pod: "{name}". {NO_CLUSTER_DNS}'),)
        if node_resolv_conf is None:
            dns = PodDNS(servers=("127.0.0.1",), searches=(".",))
    return _within_limits(_with_dns_config(pod, dns), warnings)


def _policy(pod: Pod) -> str:
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "ClusterFirstWithHostNet":
        return "ClusterFirst"
    return "Default" if policy == "ClusterFirst" and pod.spec.host_network else policy


def _searches(pod: Pod, dns: PodDNS, domain: str) -> tuple[str, ...]:
    if not domain:
        return dns.searches
    cluster_searches = (f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain)
    return tuple(dict.fromkeys((*cluster_searches, *dns.searches)))


MISSING_CLUSTER_DNS, _DNS_CONFIG_FORMING = "MissingClusterDNS", "DNSConfigForming"
NO_CLUSTER_DNS = (
    'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
    'Falling back to "Default" policy.'
)


def _with_dns_config(pod: Pod, dns: PodDNS) -> PodDNS:
    dns_config = pod.spec.dns_config
    if dns_config is None:
        return dns
    options = dict(_option(option) for option in dns.options)
    options |= {option.name: option.value or "" for option in dns_config.options}
    return PodDNS(
        servers=tuple(dict.fromkeys((*dns.servers, *dns_config.nameservers))),
        searches=tuple(dict.fromkeys((*dns.searches, *dns_config.searches))),
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


def _within_limits(dns: PodDNS, warnings: tuple[tuple[str, str], ...]) -> PodDNS:
    """The configuration within the limits of resolvers.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, formDNSConfigFitsLimits.
    """
    servers, searches = dns.servers[:_MOST_NAMESERVERS], dns.searches[:_MOST_SEARCHES]
    if servers != dns.servers:
        warnings += ((_DNS_CONFIG_FORMING, f"{_NAMESERVERS_CUT}{' '.join(servers)}"),)
    searches = tuple(search for search in searches if len(search) <= _LONGEST_DOMAIN)
    while len(" ".join(searches)) > _LONGEST_SEARCHES:
        searches = searches[:-1]
    if searches != dns.searches:
        warnings += ((_DNS_CONFIG_FORMING, f"{_SEARCHES_CUT}{' '.join(searches)}"),)
    return PodDNS(servers=servers, searches=searches, options=dns.options, warnings=warnings)


def parse_resolv_conf(text: str) -> PodDNS:
    r"""The DNS configuration in a resolv.conf.

    Follows: v1.36, pkg/kubelet/network/dns/dns.go, parseResolvConf.

    >>> parse_resolv_conf("nameserver 10.0.0.1\nsearch a.example. .\noptions ndots:2 ndots:3").searches
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
            searches = tuple(word.removesuffix(".") for word in words[1:] if word != ".")
        elif words[0] == "options":
            options |= {word.partition(":")[0]: word for word in words[1:]}
    return PodDNS(servers=tuple(servers), searches=searches, options=tuple(options.values()))


def resolv_conf_text(dns: PodDNS) -> str:
    """The resolv.conf for a DNS configuration, as runtimes write it."""
    lines: Mapping[str, tuple[str, ...]] = {"search": dns.searches, "options": dns.options}
    resolv_conf_lines = [f"{name} {' '.join(words)}" for name, words in lines.items() if words]
    resolv_conf_lines += [f"nameserver {server}" for server in dns.servers]
    return "".join(f"{line}\n" for line in resolv_conf_lines)
