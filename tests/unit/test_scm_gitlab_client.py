"""The client against a stand-in for the network: where requests go, with what, and what becomes of them."""

import gzip
import io
import json
import logging
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from actors.scm import address as addresses
from actors.scm.address import AddressRules, Pinned, parse
from actors.scm.backoff import Trouble
from actors.scm.gitlab import GitlabClient, GitlabOptions, open_gitlab
from actors.scm.gitlab_answer import BadAnswer, TooLarge
from actors.scm.gitlab_wire import PinnedTransport
from actors.scm.rate import HostRate
from actors.scm.records import SourceFailed
from actors.scm.surroundings import Secret
from tests.support.fake_clock import FakeClock

TOKEN = "glpat-synthetic-5ecret-0123456789"
URL = "https://gitlab.example.org/code"
ROOT = "https://gitlab.example.org/code/api/v4/projects/7"
PINNED = Pinned(parse(URL, "git", AddressRules()), ("192.0.2.10", "192.0.2.11"))

Answers = Callable[[httpx.Request], httpx.Response]


def said(value: Any, status: int = 200, **headers: str) -> httpx.Response:
    named = {"content-type": "application/json"} | {
        key.replace("_", "-"): one for key, one in headers.items()
    }
    return httpx.Response(status, headers=named, content=json.dumps(value).encode())


class Network:
    """Plays the answers one after the other; the last one for ever."""

    def __init__(self, *answers: httpx.Response | Exception | Answers) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, httpx.Response):
            answer = answer(request)
        if not answer.is_stream_consumed:
            return answer
        # One that was made with its content counts as read; a network's answer is read as it comes in.
        stream = httpx.ByteStream(answer.content)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)


@asynccontextmanager
async def client(
    network: Network, clock: FakeClock | None = None, **options: Any
) -> AsyncIterator[GitlabClient]:
    clock = clock or FakeClock()
    transport = PinnedTransport(PINNED, Secret(TOKEN), httpx.MockTransport(network))
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        yield GitlabClient(PINNED, 7, http, GitlabOptions(**options), HostRate(600, clock), clock)


async def failure(network: Network, **options: Any) -> SourceFailed:
    async with client(network, **options) as gitlab:
        with pytest.raises(SourceFailed) as caught:
            await gitlab.get("merge_requests", {"page": 1})
    return caught.value


async def test_a_request_goes_to_the_address_that_was_judged_and_names_the_host() -> None:
    network = Network(said([1]))
    async with client(network) as gitlab:
        answer = await gitlab.get("merge_requests", {"state": "all"})
    assert answer.items == [1]
    request = network.asked[0]
    assert str(request.url) == "https://192.0.2.10/code/api/v4/projects/7/merge_requests?state=all"
    assert request.headers["host"] == "gitlab.example.org"
    assert request.extensions["sni_hostname"] == "gitlab.example.org"


async def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    network = Network(httpx.ConnectError("refused"), said([]))
    async with client(network) as gitlab:
        await gitlab.get("merge_requests")
    assert [one.url.host for one in network.asked] == ["192.0.2.10", "192.0.2.11"]


async def test_a_name_that_leads_elsewhere_later_leads_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the name is looked up once, and never again."""
    looked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        looked.append(host)
        return ["192.0.2.1"] if len(looked) > 1 else ["127.0.0.1"]

    monkeypatch.setattr(addresses, "_look_up", look_up)
    rules = AddressRules(allow_private=True, allow_http=True)
    options = GitlabOptions(tries=1, rate_limit_rpm=60_000)
    async with open_gitlab("http://rebinding.example.org:9", 7, None, rules, options) as gitlab:
        for _ in range(2):
            with pytest.raises(SourceFailed, match="connection"):
                await gitlab.get("merge_requests")
    assert looked == ["rebinding.example.org"]


@pytest.mark.parametrize(
    "url",
    [
        "http://gitlab.example.org",
        "https://127.0.0.1",
        "https://127.1",
        "https://2130706433",
        "https://0x7f.0.0.1",
        "https://0177.0.0.1",
        "https://[::ffff:127.0.0.1]",
        "https://[::ffff:a9fe:a9fe]",
        "https://[::1]",
        "https://[64:ff9b::a9fe:a9fe]",
        "https://169.254.169.254",
        "https://10.0.0.5",
        "https://localhost",
        "https://0.0.0.0",
        "ssh://git@gitlab.example.org",
        "file:///etc/passwd",
        "https://user@gitlab.example.org",
        "https://user:pw@gitlab.example.org",
        "https://gitlab.example.org/?x=1",
        "https://gitlab.example.org\r\nHost: x",
    ],
)
async def test_an_address_that_is_not_fit_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms of an address that end inside; a connection would be a failure of another class."""
    with pytest.raises(SourceFailed) as caught:
        async with open_gitlab(url, 7, Secret(TOKEN), AddressRules()):
            pytest.fail("it was opened")
    assert caught.value.trouble in (Trouble.BAD_CONFIG, Trouble.NETWORK)
    # Forms that this machine's resolver does not know are unknown hosts; the others are refused.
    assert caught.value.trouble is Trouble.BAD_CONFIG or "0x7f" in url or "0177" in url


@pytest.mark.parametrize(
    "inside", ["10.1.2.3", "169.254.169.254", "::ffff:192.168.0.1", "fd00::1", "100.64.0.1"]
)
async def test_a_name_that_leads_inside_is_not_asked(inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_look_up", lambda host, port: ["93.184.216.34", inside])
    with pytest.raises(SourceFailed) as caught:
        async with open_gitlab("https://gitlab.example.org", 7, Secret(TOKEN), AddressRules()):
            pytest.fail("it was opened")
    assert caught.value.trouble is Trouble.BAD_CONFIG


async def test_the_addresses_of_cloud_metadata_are_refused_even_where_private_ones_are_allowed() -> None:
    rules = AddressRules(allow_private=True, allow_http=True)
    with pytest.raises(SourceFailed) as caught:
        async with open_gitlab("http://169.254.169.254/latest", 7, None, rules):
            pytest.fail("it was opened")
    assert caught.value.trouble is Trouble.BAD_CONFIG


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example.org/",
        "/code/api/v4/other",
        "file:///etc",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(location: str, status: int) -> None:
    network = Network(said({}, status, location=location))
    trouble = await failure(network)
    assert trouble.trouble is Trouble.BAD_CONFIG
    assert "it redirects" in str(trouble)
    assert len(network.asked) == 1
    assert location not in str(trouble)


async def test_even_a_client_that_follows_redirects_leads_to_no_other_host() -> None:
    network = Network(said({}, 302, location="https://evil.example.org/"), said([]))
    async with client(network) as gitlab:
        gitlab._http.follow_redirects = True
        with pytest.raises(SourceFailed, match="another host"):
            await gitlab.get("merge_requests")
    assert len(network.asked) == 1


@pytest.mark.parametrize(
    ("status", "trouble"),
    [(401, Trouble.AUTH), (403, Trouble.PERMISSION), (404, Trouble.NOT_FOUND), (400, Trouble.BAD_CONFIG)],
)
async def test_a_permanent_trouble_is_not_tried_again(status: int, trouble: Trouble) -> None:
    """R001-188: the classes that end a run"""
    network = Network(said({"message": TOKEN}, status))
    found = await failure(network)
    assert (found.trouble, found.trouble.permanent, len(network.asked)) == (trouble, True, 1)


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (said({}, 500), Trouble.SERVER_ERROR),
        (said({}, 502), Trouble.SERVER_ERROR),
        (said({}, 504), Trouble.TIMEOUT),
        (httpx.ReadTimeout("slow"), Trouble.TIMEOUT),
        (httpx.ConnectTimeout("slow"), Trouble.TIMEOUT),
        (httpx.RemoteProtocolError("peer closed connection"), Trouble.CONNECTION),
        (httpx.ReadError("reset"), Trouble.CONNECTION),
        (
            httpx.Response(200, headers={"content-type": "application/json"}, content=b'[{"id": "'),
            Trouble.CONNECTION,
        ),
    ],
)
async def test_a_passing_trouble_is_tried_again_and_then_told(answer: Any, trouble: Trouble) -> None:
    """R001-186: the classes that are retried"""
    network = Network(answer)
    found = await failure(network, tries=3)
    assert (found.trouble, found.trouble.permanent) == (trouble, False)
    assert len([one for one in network.asked if one.url.host == "192.0.2.10"]) == 3
    passing = (
        Network(answer, answer, said([]))
        if not isinstance(answer, httpx.ConnectTimeout)
        else Network(said([]))
    )
    async with client(passing, tries=3) as gitlab:
        assert (await gitlab.get("merge_requests")).items == []


async def test_an_untrusted_certificate_is_not_a_passing_trouble() -> None:
    network = Network(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"))
    assert (await failure(network)).trouble is Trouble.BAD_CONFIG


async def test_429_is_waited_for_as_the_server_says() -> None:
    """R001-186"""
    clock = FakeClock()
    network = Network(said({}, 429, retry_after="17"), said([5]))
    async with client(network, clock) as gitlab:
        began = clock.now()
        assert (await gitlab.get("merge_requests")).items == [5]
        assert 17 <= clock.now() - began < 19


async def test_429_beyond_our_patience_is_handed_on_with_its_time() -> None:
    network = Network(said({}, 429, retry_after="600"))
    found = await failure(network)
    assert (found.trouble, found.retry_after, len(network.asked)) == (Trouble.RATE_LIMIT, 600, 1)


async def test_429_holds_back_everybody_at_this_host() -> None:
    clock = FakeClock()
    rate = HostRate(600, clock)
    network = Network(said({}, 429, retry_after="30"), said([]))
    transport = PinnedTransport(PINNED, None, httpx.MockTransport(network))
    async with httpx.AsyncClient(transport=transport) as http:
        first = GitlabClient(PINNED, 7, http, GitlabOptions(patience_seconds=1), rate, clock)
        second = GitlabClient(PINNED, 8, http, GitlabOptions(), rate, clock)
        with pytest.raises(SourceFailed):
            await first.get("merge_requests")
        began = clock.now()
        await second.get("merge_requests")
        assert clock.now() - began >= 30


async def test_a_server_that_limits_for_ever_is_given_up() -> None:
    network = Network(said({}, 429, retry_after="0"))
    found = await failure(network, patience_seconds=10)
    assert found.trouble is Trouble.RATE_LIMIT
    assert len(network.asked) <= 11


async def test_the_rate_is_kept_over_pages() -> None:
    """R001-168"""
    clock = FakeClock()
    times: list[float] = []

    def page(request: httpx.Request) -> httpx.Response:
        times.append(clock.now())
        here = int(request.url.params.get("page", "1"))
        link = f'<{ROOT}/merge_requests?page={here + 1}>; rel="next"' if here < 700 else ""
        return said([here], link=link)

    async with client(Network(page), clock) as gitlab:
        found = [one async for whole in gitlab.pages("merge_requests") for one in whole]
    assert found == list(range(1, 701))
    assert max(sum(start <= one < start + 60 for one in times) for start in times) <= 600


async def test_requests_carry_per_page() -> None:
    """R001-167"""
    network = Network(said([]))
    async with client(network, per_page=37) as gitlab:
        await gitlab.page("merge_requests", {})
        [page async for page in gitlab.pages("merge_requests")]
    assert [one.url.params["per_page"] for one in network.asked] == ["37", "37"]


@pytest.mark.parametrize("query", ["page=2", "cursor=same", "page=1"])
async def test_pages_that_lead_round_and_round_are_cut(query: str) -> None:
    network = Network(said([1], link=f'<{ROOT}/merge_requests?{query}>; rel="next"'))
    async with client(network) as gitlab:
        with pytest.raises(BadAnswer, match="without an end"):
            [page async for page in gitlab.pages("merge_requests")]
    assert len(network.asked) <= 3


async def test_empty_pages_with_a_next_one_are_cut() -> None:
    def page(request: httpx.Request) -> httpx.Response:
        here = int(request.url.params.get("page", "1"))
        return said([], link=f'<{ROOT}/merge_requests?page={here + 1}>; rel="next"')

    network = Network(page)
    async with client(network) as gitlab:
        with pytest.raises(BadAnswer, match="without an end"):
            [page async for page in gitlab.pages("merge_requests")]
    assert len(network.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, headers={"content-type": "text/html"}, content=b"[]"),
        httpx.Response(200, content=b"[]"),
        httpx.Response(206, headers={"content-type": "application/json"}, content=b"[]"),
        httpx.Response(200, headers={"content-type": "application/json"}, content=b"<html>secret"),
        said([], link='<https://evil.example.org/code/api/v4/projects/7/merge_requests?page=2>; rel="next"'),
    ],
    ids=["html", "no type", "part", "no json", "link elsewhere"],
)
async def test_what_no_gitlab_would_say_is_a_bad_answer(answer: httpx.Response) -> None:
    network = Network(answer)
    found = await failure(network)
    assert isinstance(found, BadAnswer)
    assert found.trouble.permanent
    assert "secret" not in str(found)
    assert len(network.asked) == 1


async def test_something_else_than_a_list_is_a_bad_answer() -> None:
    async with client(Network(said({"message": "x"}))) as gitlab:
        with pytest.raises(BadAnswer):
            [page async for page in gitlab.pages("merge_requests")]


def streamed(pieces: list[bytes], sent: list[int], **headers: str) -> Answers:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            sent.append(len(piece))
            yield piece

    named = {
        "content-type": "application/json",
        **{key.replace("_", "-"): one for key, one in headers.items()},
    }
    return lambda request: httpx.Response(200, headers=named, content=body())


async def test_a_body_beyond_the_limit_is_not_read_to_its_end() -> None:
    sent: list[int] = []
    network = Network(streamed([b"[" + b" " * 65_535] * 1000, sent))
    assert isinstance(await failure(network, body_limit_bytes=1 << 20), TooLarge)
    assert sum(sent) < 3 << 20


async def test_a_body_that_unpacks_to_a_large_one_is_not_unpacked() -> None:
    """A hundred kilobytes that would be a hundred megabytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(100):
            file.write(b" " * (1 << 20))
    sent: list[int] = []
    body = packed.getvalue()
    pieces = [body[:50_000], body[50_000:]]
    network = Network(streamed(pieces, sent, content_encoding="gzip"))
    tracemalloc.start()
    try:
        assert isinstance(await failure(network, body_limit_bytes=4 << 20), TooLarge)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert len(sent) == 1


async def test_packed_bodies_are_read() -> None:
    packed = gzip.compress(json.dumps(["ä" * 100_000]).encode())
    network = Network(streamed([packed[:50], packed[50:]], [], content_encoding="gzip"))
    async with client(network) as gitlab:
        assert (await gitlab.get("x")).items == ["ä" * 100_000]
    cut = Network(streamed([packed[:-20]], [], content_encoding="gzip"))
    assert (await failure(cut, tries=1)).trouble is Trouble.CONNECTION
    broken = Network(streamed([b"no gzip at all"], [], content_encoding="gzip"))
    assert isinstance(await failure(broken), BadAnswer)
    other = Network(streamed([b"x"], [], content_encoding="br"))
    assert isinstance(await failure(other), BadAnswer)


async def test_the_token_is_nowhere_but_in_its_header(caplog: pytest.LogCaptureFixture) -> None:
    """Not in an address, a log, an error, a representation or a request that anything above holds."""
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    answers: list[Any] = [
        said({"message": TOKEN}, one, location=TOKEN) for one in (302, 400, 401, 403, 404, 500)
    ]
    answers += [
        httpx.ReadError(TOKEN),
        httpx.Response(200, content=TOKEN.encode()),
        said([TOKEN], link=f'<{TOKEN}>; rel="next"'),
    ]
    answers.append(httpx.Response(200, headers={"content-type": "application/json"}, content=TOKEN.encode()))
    for answer in answers:
        network = Network(answer)
        async with client(network, tries=1) as gitlab:
            seen += [repr(gitlab), repr(gitlab._http.headers), repr(vars(gitlab))]
            with pytest.raises(SourceFailed) as caught:
                await gitlab.get("merge_requests")
            error = caught.value
            seen += ["".join(traceback.format_exception(error)), repr(error), str(error.facts)]
            seen += [repr(error.__context__), repr(error.__cause__)]
        for request in network.asked:
            assert request.headers["private-token"] == TOKEN
            seen.append(str(request.url))
    assert TOKEN not in "\n".join([*map(str, seen), caplog.text])


@pytest.mark.parametrize("token", ["glpat-sécret", "glpat secret", "secret\x7f", "s" * 1001, " secret"])
async def test_a_token_that_no_header_carries_is_refused_unseen(token: str) -> None:
    with pytest.raises(SourceFailed) as caught:
        async with open_gitlab("https://gitlab.example.org", 7, Secret(token), AddressRules()):
            pytest.fail("it was opened")
    assert caught.value.trouble is Trouble.AUTH
    assert token not in "".join(traceback.format_exception(caught.value))


async def test_a_token_is_asked_for_by_name_only() -> None:
    assert TOKEN not in repr(Secret(TOKEN))
    network = Network(said([]))
    transport = PinnedTransport(PINNED, None, httpx.MockTransport(network))
    async with httpx.AsyncClient(transport=transport) as http:
        await GitlabClient(PINNED, 7, http, GitlabOptions(), HostRate(600, FakeClock()), FakeClock()).get("x")
    assert "private-token" not in network.asked[0].headers


async def test_an_address_may_name_the_api_itself() -> None:
    pinned = Pinned(parse(URL + "/api/v4/", "git", AddressRules()), ("192.0.2.10",))
    async with httpx.AsyncClient() as http:
        assert ROOT in repr(GitlabClient(pinned, 7, http, GitlabOptions(), HostRate(600)))
