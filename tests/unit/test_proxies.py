"""Whose word about a client's address is believed, and how far back."""

import pytest

from supervisor.config import load_settings
from supervisor.errors import BadSettings
from supervisor.proxies import TrustedProxies

PROXIES = TrustedProxies.parse(" 10.0.0.0/8, 192.0.2.9,2001:db8:1::/48 ,")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("198.51.100.1", [], "198.51.100.1"),
        ("198.51.100.1", ["203.0.113.7"], "198.51.100.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.7,10.9.9.9"], "203.0.113.7"),
        ("10.0.0.1", ["203.0.113.7", "192.0.2.9"], "203.0.113.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["203.0.113.7, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["203.0.113.7,"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7:5000"], "203.0.113.7"),
        ("10.0.0.1", ["[2001:db8::7]:5000"], "2001:db8::7"),
        ("::ffff:10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("2001:db8:1::1", ["::ffff:203.0.113.7"], "203.0.113.7"),
        ("", ["203.0.113.7"], ""),
    ],
)
def test_the_nearest_hop_that_is_no_proxy_is_the_client(
    peer: str, forwarded_for: list[str], client: str
) -> None:
    assert PROXIES.client_of(peer, forwarded_for) == client


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("10.0.0.0/8, ingress.example", "`ingress.example` is no address and no network"),
        ("10.0.0.0/33", "is no address"),
        ("*", "is no address"),
        ("0.0.0.0/0", "would believe everybody"),
        ("::/0", "would believe everybody"),
        ("10.1.2.3/8", "write 10.0.0.0/8"),
    ],
)
def test_a_wrong_proxy_is_refused_at_start(
    given: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_TRUSTED_PROXIES", given)
    with pytest.raises(BadSettings) as refused:
        load_settings()
    assert "TENURE_TRUSTED_PROXIES" in str(refused.value)
    assert complaint in str(refused.value)


def test_nobody_is_trusted_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1" not in load_settings().proxies
    monkeypatch.setenv("TENURE_TRUSTED_PROXIES", "10.0.0.0/8,192.0.2.9/32")
    proxies = load_settings().proxies
    assert [peer in proxies for peer in ("10.255.0.1", "192.0.2.9", "192.0.2.8")] == [True, True, False]
