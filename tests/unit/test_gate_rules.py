"""What the gate decides by, without a server: credentials, origins, ways back, limits and form tokens."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from starlette.requests import Request
from starlette.types import Message

from supervisor.api import lasting
from supervisor.api.credentials import Ambiguous, form_token, given_by, new_session, shared_proof
from supervisor.api.csrf import FORM_BYTES, is_token, shown_token
from supervisor.api.limiter import (
    BURST,
    PAUSE_SECONDS,
    REFILL_SECONDS,
    Guesses,
    TooManyRefusals,
    Turnstile,
    network_of,
)
from supervisor.api.origin import is_foreign, is_secure, local_path
from supervisor.api.recent import Recent
from supervisor.api.tokens import Token, new_secret, shown
from supervisor.cli.token import parse_span
from supervisor.config import API_TOKEN_LENGTH, load_settings
from supervisor.errors import BadInput, BadSettings, Conflict
from tests.support.fake_clock import FakeClock

SESSION = b"s" * 43


def scope(*headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {"type": "http", "headers": list(headers)}


@pytest.mark.parametrize(
    ("path", "led_to"),
    [
        ("/", "/"),
        ("/runs/7?tab=log#end", "/runs/7?tab=log#end"),
        ("/runs?q=%2F%2Fevil", "/runs?q=%2F%2Fevil"),
        ("/loginx", "/loginx"),
        ("", "/"),
        ("runs", "/"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/\t/evil.example", "/"),
        (" //evil.example", "/"),
        ("/a\r\nSet-Cookie: a=b", "/"),
        ("/\0", "/"),
        ("/\x7f", "/"),
        ("/ü", "/"),
        ("/login?next=/login", "/"),
        ("/logout", "/"),
        ("/" + "a" * 3000, "/"),
    ],
)
def test_a_way_back_stays_on_this_server(path: str, led_to: str) -> None:
    assert local_path(path) == led_to


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://evil"}, True),
        ({"origin": "http://here:81", "host": "here:81"}, False),
        ({"origin": "http://here", "host": "here:80"}, False),
        ({"origin": "https://here", "host": "here"}, False),
        ({"origin": "https://here:443", "host": "HERE"}, False),
        ({"origin": "https://here", "host": "here:80"}, True),
        ({"origin": "http://here:82", "host": "here:81"}, True),
        ({"origin": "http://[::1]:80", "host": "[::1]"}, False),
        ({"origin": "null", "host": "null"}, True),
        ({"origin": "http://", "host": ""}, True),
        ({"origin": "http://here"}, True),
        ({"origin": "http://here:x", "host": "here:x"}, True),
        ({"origin": "http://[", "host": "["}, True),
    ],
)
def test_a_browser_says_whose_page_sent_a_form(headers: dict[str, str], foreign: bool) -> None:
    assert is_foreign(headers) == foreign


def test_the_browser_knows_whether_it_speaks_https() -> None:
    assert is_secure("https", {})
    assert is_secure("http", {"origin": "https://here"})
    assert not is_secure("http", {"origin": "http://here"})
    assert not is_secure("http", {"origin": "https://["})


def test_credentials_are_taken_from_exactly_one_place() -> None:
    auth, cookie = b"authorization", b"cookie"
    assert given_by(scope()).bearer is None
    assert given_by(scope((auth, b"  bEaReR   abc  "))).bearer == b"abc"
    assert given_by(scope((auth, b"Basic abc"), (auth, b"Bearer abc"))).bearer == b"abc"
    assert given_by(scope((auth, b"Bearer"))).bearer is None
    with pytest.raises(Ambiguous):
        given_by(scope((auth, b"Bearer a"), (auth, b"Bearer b")))
    assert given_by(scope((cookie, b"a=b; tenure_session=" + SESSION))).session == SESSION
    for wrong in (b"tenure_session=x", b"tenure_session=%s; tenure_session=y" % SESSION):
        given = given_by(scope((cookie, wrong)))
        assert (given.session, given.stale_cookie) == (None, True)
    assert not given_by(scope((cookie, b"xtenure_session=" + SESSION))).stale_cookie
    assert SESSION.decode() not in repr(given_by(scope((cookie, b"tenure_session=" + SESSION))))


def test_a_short_token_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """S3: nothing but its length stands between it and whoever guesses."""
    monkeypatch.chdir(tmp_path)
    long, short = "k" * API_TOKEN_LENGTH, "k" * (API_TOKEN_LENGTH - 1)
    monkeypatch.setenv("TENURE_API_TOKEN", long)
    assert load_settings().api_token is not None
    for wrong in (short, f"  {short}  ", "k"):
        monkeypatch.setenv("TENURE_API_TOKEN", wrong)
        with pytest.raises(BadSettings, match="TENURE_API_TOKEN has fewer than 16 characters") as refused:
            load_settings()
        assert short not in str(refused.value)
        assert "openssl rand" in str(refused.value)


async def test_a_stream_outlives_a_moment_in_which_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "ASK_SECONDS", 0)
    answers: list[bool | Exception] = [True, Conflict(what="away"), True, False]
    closed = []

    async def still_valid() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def events() -> AsyncGenerator[str, None]:
        try:
            for text in ("a", "b", lasting.NOTHING, "never", "never"):
                yield text
        finally:
            closed.append(1)

    request = Request({"type": "http", "headers": [], "state": {"still_valid": still_valid}})
    told = [text async for text in lasting.while_permitted(request, events(), "end")]
    assert (told, closed) == (["a", "b", "end"], [1])


def test_a_token_is_read_as_it_was_shown() -> None:
    secret, encoded = new_secret()
    token = Token.parse(shown(7, secret).encode())
    assert token is not None
    assert (token.id, token.fits(encoded)) == (7, True)
    assert not Token(7, token.secret[:-1] + b"!").fits(encoded)
    assert not token.fits("no hash")
    assert secret not in repr(token)
    for wrong in (
        b"",
        b"tnr_7_",
        b"tnr_0_" + SESSION,
        b"tnr_%d_%b" % (2**63, SESSION),
        b"tnr_7_" + SESSION + b"\n",
    ):
        assert Token.parse(wrong) is None, wrong


def test_a_forms_token_and_the_proof_belong_to_one_session() -> None:
    first, second = new_session(), new_session()
    assert form_token(first) == form_token(first) != form_token(second)
    assert first.decode() not in form_token(first)
    assert shared_proof(first, b"a") != shared_proof(first, b"b")
    assert shared_proof(first, b"a") != shared_proof(second, b"a")
    assert not is_token("", "")
    assert not is_token("ü", form_token(first))


async def test_a_form_is_read_to_a_bound_and_given_back() -> None:
    def parts(body: bytes, size: int) -> Iterator[Message]:
        for start in range(0, len(body), size):
            yield {"type": "http.request", "body": body[start : start + size], "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    urlencoded = scope((b"content-type", b"application/x-www-form-urlencoded"))
    for size, expected in ((FORM_BYTES - 100, "abc"), (FORM_BYTES + 1, "")):
        body = b"csrf=abc&a=" + b"x" * size
        left = list(parts(body, 65536))

        async def receive(left: list[Message] = left) -> Message:
            return left.pop(0)

        shown, again = await shown_token(urlencoded, receive)
        assert shown == expected
        if expected:
            assert (await again())["body"] == body
        else:
            assert left, "it was not read to its end"


async def test_an_address_has_so_many_guesses_and_gets_them_back() -> None:
    """S3: after that a wrong guess is refused, and late."""
    clock = FakeClock()
    guesses = Guesses(clock)

    async def answered_after(address: str, *, right: bool) -> float:
        asked_at = clock.now()
        await guesses.weigh(address, right=right)
        return clock.now() - asked_at

    for _ in range(BURST):
        assert await answered_after("192.0.2.1", right=False) == 0
    for _ in range(3):
        asked_at = clock.now()
        with pytest.raises(TooManyRefusals) as refused:
            await guesses.weigh("192.0.2.1", right=False)
        assert clock.now() - asked_at == PAUSE_SECONDS
        assert 0 < refused.value.facts["seconds"] <= REFILL_SECONDS
    assert await answered_after("192.0.2.2", right=False) == 0, "from elsewhere"
    clock.pass_seconds(REFILL_SECONDS)
    assert await answered_after("192.0.2.1", right=False) == 0
    with pytest.raises(TooManyRefusals):
        await guesses.weigh("192.0.2.1", right=False)
    clock.pass_seconds(10 * BURST * REFILL_SECONDS)
    for _ in range(BURST):
        assert await answered_after("192.0.2.1", right=False) == 0


async def test_the_right_guess_is_never_refused_and_never_told_sooner() -> None:
    """S3: whoever has it is let in, and whoever guesses has to wait with each guess."""
    clock = FakeClock()
    guesses = Guesses(clock)
    await guesses.weigh("192.0.2.1", right=True)
    assert clock.now() == FakeClock().now()
    for number in range(5 * BURST):
        with suppress(TooManyRefusals):
            await guesses.weigh("192.0.2.1", right=False)
        asked_at = clock.now()
        await guesses.weigh("192.0.2.1", right=True)
        assert clock.now() - asked_at == (0 if number < BURST - 1 else PAUSE_SECONDS)


async def test_an_address_waits_in_its_own_line() -> None:
    """Many at one address keep one place busy, and nobody else waiting."""
    turnstile, go_on, turns = Turnstile(2), anyio.Event(), []

    async def take(address: str) -> None:
        async with turnstile.turn(address):
            turns.append(address)
            await go_on.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(take, "2001:db8::1")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(take, "2001:db8::ffff:1")
        await anyio.wait_all_tasks_blocked()
        assert turns == ["2001:db8::1"]
        tasks.start_soon(take, "192.0.2.2")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(take, "192.0.2.3")
        await anyio.wait_all_tasks_blocked()
        assert turns == ["2001:db8::1", "192.0.2.2"], "two at once, of whichever addresses"
        go_on.set()
    assert len(turns) == 53


def test_an_ipv6_network_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("") == ""


def test_what_is_remembered_is_bounded() -> None:
    recent: Recent[int, int] = Recent(2)
    for number in (1, 2, 1, 3):
        recent.put(number, number)
    assert [number in recent for number in (1, 2, 3)] == [True, False, True]
    assert len(recent) == 2


def test_a_span_has_a_unit_and_bounds() -> None:
    assert [parse_span(text) for text in ("1m", "12h", "90d", "4w")] == [60, 43200, 7776000, 2419200]
    for wrong in ("", "90", "d", "-1d", "1.5h", "0m", "3651d", "٣d", "1d\n"):
        with pytest.raises(BadInput):
            parse_span(wrong)
