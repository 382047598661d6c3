"""Proxies of the environment."""

import pytest

from nodewright.cluster.client.access import environment_proxy
from nodewright.model.errors import InputError

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_used"),
    [
        ("https://api.example:6443", "", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.2:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://api.example:6443", "*", False),
        ("https://api.example:6443", "other, example", False),
        ("https://api.example:6443", ".example", False),
        ("https://example:6443", ".example", True),
        ("https://example:6443", "*.example", True),
        ("https://api.example:6443", "*.example", False),
        ("https://api.example:6443", "api.example:6443", False),
        ("https://api.example:6443", "api.example:443", True),
        ("https://api.example", "api.example:443", False),
        ("https://notexample", "example", True),
        ("https://10.1.2.3:6443", "10.1.0.0/16", False),
        ("https://10.2.2.3:6443", "10.1.0.0/16", True),
        ("https://10.2.2.3:6443", "10.2.2.3", False),
        ("https://10.2.2.3:6443", "10.2.2.3:80", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://api.example:6443", "a/b", True),
    ],
)
def test_some_hosts_are_reached_without_a_proxy(url: str, no_proxy: str, is_used: bool) -> None:
    assert environment_proxy(url, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (PROXY if is_used else "")


def test_each_scheme_has_its_variable() -> None:
    environment = {"https_proxy": "a:1", "HTTP_PROXY": "b:1"}
    assert environment_proxy("https://x", environment) == "http://a:1"
    assert environment_proxy("http://x", environment) == "http://b:1"
    assert environment_proxy("http://x", {}) == ""


@pytest.mark.parametrize(
    "proxy", ["socks5://a:1", "http://[", "http://a:99999", "http://", "::::", "http://a:b"]
)
def test_a_proxy_of_the_environment_that_cannot_be_used_is_an_error(proxy: str) -> None:
    with pytest.raises(InputError, match=r"\$https_proxy"):
        environment_proxy("https://x", {"https_proxy": proxy})
