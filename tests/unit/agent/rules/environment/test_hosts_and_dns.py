"""Names of pods, and whom they ask for those of others."""

from nodewright.agent.rules.hosts_and_dns import (
    OverlongHostname,
    PodDNS,
    PodHostname,
    kernel_hostname,
    managed_hosts_file,
    node_hosts_file,
    pod_dns,
    pod_hostname,
    resolv_conf_text,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_spec_fields import HostAlias
from nodewright.testing.objects import a_pod

MACHINE = "# mine\ndomain old.example\nnameserver 192.0.2.53\nsearch example.com. .\noptions timeout:1 rotate timeout:2\n"
ALIASES = (HostAlias("10.0.0.1", ("db", "db.local")),)

FALLS_BACK = (
    'pod: "web_default(web)". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
    '"ClusterFirst" policy. Falling back to "Default" policy.'
)


def dns(pod: Pod, machine: str | None = MACHINE, cluster: tuple[str, ...] = ("10.96.0.10",)) -> PodDNS:
    return pod_dns(pod, machine, cluster, "cluster.local")


def test_a_pod_is_called_by_its_name_or_as_it_says() -> None:
    assert pod_hostname(a_pod("web"), "cluster.local") == PodHostname("web")
    named = a_pod("web", hostname="front", subdomain="shop")
    assert pod_hostname(named, "cluster.local") == PodHostname("front", "shop.default.svc.cluster.local")
    assert pod_hostname(a_pod("web", hostnameOverride="a.b", subdomain="shop"), "x") == PodHostname("a.b")
    assert pod_hostname(a_pod("a" * 62 + ".b"), "x") == PodHostname("a" * 62)


def test_the_kernel_takes_hostnames_of_up_to_64_characters() -> None:
    pod = a_pod(setHostnameAsFQDN=True)
    assert kernel_hostname(pod, PodHostname("w" * 60, "abc")) == "w" * 60 + ".abc"
    overlong = kernel_hostname(pod, PodHostname("w" * 60, "abcd"))
    assert isinstance(overlong, OverlongHostname)
    assert overlong.message == (
        f"failed to construct FQDN from pod hostname and cluster domain, FQDN {'w' * 60}.abcd is too long "
        "(64 characters is the max, 65 characters requested)"
    )
    assert kernel_hostname(a_pod(), PodHostname("w" * 60, "abcd")) == "w" * 60


def test_the_hosts_file_of_a_pod_with_a_network_of_its_own() -> None:
    text = managed_hosts_file(PodHostname("web", "shop.default.svc"), ["10.0.0.7"], ALIASES)
    assert text.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-")
    assert text.endswith(
        "fe00::2\tip6-allrouters\n10.0.0.7\tweb.shop.default.svc\tweb\n"
        "\n# Entries added by HostAliases.\n10.0.0.1\tdb\tdb.local\n"
    )
    assert managed_hosts_file(PodHostname("web"), ["10.0.0.7"], ()).endswith("\n10.0.0.7\tweb\n")


def test_the_hosts_file_of_a_pod_in_the_machines_network() -> None:
    expected = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n"
    assert node_hosts_file("127.0.0.1 me\n", ()) == expected


def test_pods_ask_the_cluster_first_where_there_is_one() -> None:
    assert dns(a_pod()) == PodDNS(
        servers=("10.96.0.10",),
        searches=("default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"),
        options=("ndots:5",),
    )
    with_host = a_pod(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    assert dns(with_host).servers == ("10.96.0.10",)
    assert pod_dns(a_pod(), MACHINE, ("10.96.0.10",), "").searches == ("example.com",)


def test_others_ask_whom_the_machine_asks() -> None:
    of_machine = PodDNS(servers=("192.0.2.53",), searches=("example.com",), options=("timeout:2", "rotate"))
    assert dns(a_pod(dnsPolicy="Default")) == of_machine
    assert dns(a_pod(hostNetwork=True)) == of_machine
    alone = dns(a_pod(), cluster=())
    assert alone.servers == ("192.0.2.53",)
    assert alone.warnings == (("MissingClusterDNS", FALLS_BACK),)
    assert dns(a_pod(dnsPolicy="Default"), None) == PodDNS(servers=("127.0.0.1",), searches=(".",))


def test_a_pod_adds_its_own() -> None:
    own = {
        "nameservers": ["192.0.2.53", "192.0.2.54"],
        "searches": ["b.example"],
        "options": [{"name": "timeout", "value": "9"}, {"name": "edns0"}],
    }
    result = dns(a_pod(dnsPolicy="Default", dnsConfig=own))
    assert result.servers == ("192.0.2.53", "192.0.2.54")
    assert result.searches == ("example.com", "b.example")
    assert result.options == ("timeout:9", "rotate", "edns0")
    assert dns(a_pod(dnsPolicy="None", dnsConfig=own)).searches == ("b.example",)
    expected = "search b.example\noptions timeout:9 edns0\nnameserver 192.0.2.53\nnameserver 192.0.2.54\n"
    assert resolv_conf_text(dns(a_pod(dnsPolicy="None", dnsConfig=own))) == expected


def test_what_resolvers_cannot_take_is_left_out_and_told() -> None:
    own = {
        "nameservers": [f"192.0.2.{n}" for n in range(5)],
        "searches": ["a" * 254, *["b" * 240 + str(n) for n in range(9)]],
    }
    result = dns(a_pod(dnsPolicy="None", dnsConfig=own))
    assert len(result.servers) == 3
    assert len(result.searches) == 8
    assert [message.split(",")[0] for _, message in result.warnings] == [
        "Nameserver limits were exceeded",
        "Search Line limits were exceeded",
    ]
