"""Addresses of repositories: what is refused before any program sees it."""

import socket
from typing import Any

import pytest

from actors.scm.address import AddressRules, HostUnknown, Kind, UnsafeAddress, complaint, parse, resolve

STRICT = AddressRules()
OPEN = AddressRules(allow_private=True, allow_http=True, allow_file=True)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("svn://svn.example.com/repo", "svn"),
        ("svn+ssh://me@svn.example.com:2222/srv/repo", "svn"),
        ("https://svn.example.com/repo/trunk", "svn"),
        ("https://git.example.com/group/project.git", "git"),
        ("ssh://git@git.example.com/group/project.git", "git"),
        ("https://[2001:4860:4860::8888]/r.git", "git"),
    ],
)
def test_the_schemes_of_each_kind_pass_and_stay_as_they_were(url: str, kind: Kind) -> None:
    assert parse(url, kind, STRICT).url == url


@pytest.mark.parametrize("kind", ["svn", "git"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "ext://sh",
        "fd::17",
        "git://git.example.com/r.git",
        "ftp://git.example.com/r.git",
        "git@github.com:group/project.git",
        "/etc",
        "../repo",
        "file:///etc",
        "file://host/etc",
        "http://git.example.com/r.git",
        "https://",
        "https:///path",
        "https://user:secret@git.example.com/r.git",
        "https://user:@git.example.com/r.git",
        "https://-oProxyCommand=x/r.git",
        "ssh://-oProxyCommand=x/r.git",
        "ssh://git@-oProxyCommand=x/r.git",
        "ssh://-l@git.example.com/r.git",
        "svn+ssh://-oProxyCommand=x/r",
        "svn+evil://svn.example.com/r",
        "https://git.example.com/-u/x",
        "ssh://git.example.com/--upload-pack=x",
        "https://git.example.com//evil.example.com/r",
        "https://git.example.com/r.git\nHost: x",
        "https://git.example.com/r.git\t",
        "https://git.example.com/r\x00.git",
        "https://git.example.com/a b",
        "https://git.example.com\\@evil.example.com/r",
        "https://git.example.com:99999/r",
        "https://git.example.com:port/r",
        "https://git.example.com/r?x=y",
        "https://git.example.com/r#x",
        "https://[fe80::1%eth0]/r",
        "https://a..b/r",
        "https://" + "a" * 3000,
    ],
)
def test_what_is_not_plainly_an_address_is_refused(url: str, kind: Kind) -> None:
    with pytest.raises(UnsafeAddress) as refusal:
        parse(url, kind, STRICT)
    assert "secret" not in str(refusal.value)


def test_each_kind_has_its_own_schemes() -> None:
    for url, kind in (("svn://a.example/r", "git"), ("ssh://a.example/r", "svn")):
        with pytest.raises(UnsafeAddress):
            parse(url, kind, OPEN)  # type: ignore[arg-type]


def test_what_the_operator_allows_passes() -> None:
    assert parse("http://git.example.com/r.git", "git", OPEN).port == 80
    assert parse("file:///srv/git/r.git", "git", OPEN).url == "file:///srv/git/r.git"
    for url in ("file:///srv/../etc", "file:///-x", "file://host/x", "file:x"):
        with pytest.raises(UnsafeAddress):
            parse(url, "git", OPEN)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00:ec2::254", "fc00::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "100.100.100.200",
    ],
)  # fmt: skip
def test_private_addresses_are_refused_unless_allowed(address: str) -> None:
    assert complaint(address, STRICT)
    assert complaint(address, OPEN) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::",
        "255.255.255.255", "240.0.0.1", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe",
    ],
)  # fmt: skip
def test_metadata_and_multicast_addresses_are_refused_always(address: str) -> None:
    assert complaint(address, STRICT)
    assert complaint(address, OPEN)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_public_addresses_pass(address: str) -> None:
    assert complaint(address, STRICT) is None


async def test_one_private_address_among_many_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", ("10.0.0.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    address = parse("https://git.example.com/r.git", "git", STRICT)
    with pytest.raises(UnsafeAddress):
        await resolve(address, STRICT)
    assert (await resolve(address, OPEN)).addresses == ("93.184.216.34", "10.0.0.1")


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "localhost"])
async def test_other_spellings_of_loopback_are_found_out(host: str) -> None:
    with pytest.raises((UnsafeAddress, HostUnknown)):
        await resolve(parse(f"https://{host}/r.git", "git", STRICT), STRICT)


async def test_a_name_that_nobody_knows_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(HostUnknown):
        await resolve(parse("https://git.example.com/r.git", "git", STRICT), STRICT)
