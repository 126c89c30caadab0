import pytest

from pinner.api.access.peer import client_address, is_trusted, parse_networks, throttle_key
from pinner.model.errors import Invalid

TRUSTED = parse_networks(["10.0.0.7", "10.1.0.0/24", "2001:db8::/64"], "trusted")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.1", "192.0.2.1"),
        ("10.0.0.7", "", "10.0.0.7"),
        ("10.0.0.7", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.7", "1.2.3.4, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.7", "1.2.3.4, 198.51.100.1, 10.1.0.9", "198.51.100.1"),
        ("10.0.0.7", "10.1.0.3,10.1.0.9", "10.1.0.3"),
        ("10.0.0.7", "1.2.3.4, nonsense", "10.0.0.7"),
        ("10.0.0.7", "1.2.3.4, nonsense, 10.1.0.9", "10.1.0.9"),
        ("10.0.0.7", "1.2.3.4,", "10.0.0.7"),
        ("10.0.0.7", "\u0661.2.3.4", "10.0.0.7"),
        ("::ffff:10.0.0.7", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.7", "::ffff:198.51.100.1", "198.51.100.1"),
        ("2001:db8::5", "2001:DB9::1", "2001:db9::1"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        ("unknown", "198.51.100.1", "unknown"),
    ],
)
def test_the_client_is_the_last_hop_that_is_no_trusted_proxy(peer, forwarded, client):
    assert client_address(peer, forwarded, TRUSTED) == client


def test_nobody_is_trusted_by_default():
    assert client_address("127.0.0.1", "198.51.100.1", ()) == "127.0.0.1"
    assert not is_trusted("127.0.0.1", ())


@pytest.mark.parametrize("text", ["10.0.0.300", "proxy.example", "", "10.0.0.7/24", "0.0.0.0/0", "::/0"])
def test_a_wrong_network_is_named(text):
    with pytest.raises(Invalid) as refused:
        parse_networks([text], "[api] trusted_proxies")
    assert (refused.value.details["field"], refused.value.details["value"]) == ("[api] trusted_proxies", text)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_failures_are_counted_by_address_or_by_ipv6_network(address, key):
    assert throttle_key(address) == key
