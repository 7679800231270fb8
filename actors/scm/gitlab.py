"""A GitLab project over its REST API (v4), read only: one client a sync.

    async with open_gitlab(url, project_id, secret, rules, options) as gitlab:
        async for page in gitlab.pages("merge_requests", {"state": "all"}): ...

Every request waits for its turn (rate.py), has an end in time and in size, and follows no redirect. A
passing trouble is tried again a few times at once; a 429 holds everybody back who asks this host, for as
long as the server says, and is handed on with that time where it is longer than our patience. What is left
is SourceFailed with its class, or BadAnswer (permanent) where the server answers what no GitLab would.
Messages name the path asked for and the status, never the token and nothing of what was answered.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
from anyio import to_thread

from actors.scm.address import AddressRules, HostUnknown, Pinned, UnsafeAddress, parse, resolve
from actors.scm.backoff import Trouble, trouble_of_http
from actors.scm.gitlab_answer import BadAnswer, Incomplete, next_page, parse_json, server_date, wait_seconds
from actors.scm.gitlab_wire import pinned_transport, read_body
from actors.scm.rate import HostRate, rate_of
from actors.scm.records import SourceFailed
from actors.scm.surroundings import Secret
from supervisor.clock import Clock

__all__ = ["Answer", "GitlabClient", "GitlabOptions", "Parameters", "open_gitlab"]

API: Final = "/api/v4"
INLINE_BYTES: Final = 1 << 18
SHORT_WAIT_SECONDS: Final = 1.0
MAX_PAGES: Final = 100_000
# What a header carries; another character would be an error with the token in it, deep below.
TOKEN: Final = re.compile(r"[\x21-\x7e]{1,1000}")

Parameters = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class GitlabOptions:
    per_page: int = 100
    rate_limit_rpm: int = 600
    body_limit_bytes: int = 32 << 20
    request_seconds: float = 120.0
    connect_seconds: float = 20.0
    tries: int = 3
    patience_seconds: float = 60.0
    """How long a server that asks to be left alone is waited for, inside of one request."""
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A value, the way to the next page of it, and what the server's clock said."""

    value: Any
    next: dict[str, str] | None
    date: datetime | None

    @property
    def items(self) -> list[Any]:
        if not isinstance(self.value, list):
            raise BadAnswer("something else than a list")
        return self.value


@asynccontextmanager
async def open_gitlab(
    url: str,
    project_id: int,
    secret: Secret | None,
    rules: AddressRules,
    options: GitlabOptions | None = None,
) -> AsyncIterator["GitlabClient"]:
    """The project behind the address of a GitLab server, once the address is judged fit to be asked."""
    options = options or GitlabOptions()
    if secret and not TOKEN.fullmatch(secret.value):
        raise _failed(Trouble.AUTH, "the token has characters that no token has")
    pinned = await _pinned(url, rules)
    transport = await pinned_transport(pinned, secret, options.ca_file)
    seconds = httpx.Timeout(options.request_seconds, connect=options.connect_seconds)
    async with httpx.AsyncClient(transport=transport, timeout=seconds, trust_env=False) as http:
        rate = rate_of(f"{pinned.of.host}:{pinned.of.port}", options.rate_limit_rpm)
        yield GitlabClient(pinned, project_id, http, options, rate)


async def _pinned(url: str, rules: AddressRules) -> Pinned:
    try:
        address = parse(url, "git", rules)
        if address.scheme in ("https", "http") and not address.user:
            return await resolve(address, rules)
    except UnsafeAddress as refusal:
        raise _failed(Trouble.BAD_CONFIG, str(refusal)) from None
    except HostUnknown as refusal:
        raise _failed(Trouble.NETWORK, str(refusal)) from None
    raise _failed(Trouble.BAD_CONFIG, "GitLab is asked over https, without a user in the address")


class GitlabClient:
    def __init__(
        self,
        pinned: Pinned,
        project_id: int,
        http: httpx.AsyncClient,
        options: GitlabOptions,
        rate: HostRate,
        clock: Clock | None = None,
    ) -> None:
        base = pinned.of.url.removesuffix(API)
        self._root = f"{base}{API}/projects/{project_id}"
        self._host = pinned.of.host
        self._http = http
        self._rate = rate
        self._clock = clock or Clock()
        self.options = options

    def __repr__(self) -> str:
        return f"GitlabClient({self._root})"

    async def get(self, path: str, parameters: Parameters | None = None) -> Answer:
        """One answer to `path`, which is relative to the project. Troubles that pass are waited for."""
        tries, waited = 0, 0.0
        while True:
            await self._rate.turn()
            outcome = await self._once(path, parameters or {})
            if isinstance(outcome, Answer):
                return outcome
            tries += 1
            wait = outcome.retry_after if outcome.retry_after is not None else SHORT_WAIT_SECONDS * tries
            limited = outcome.trouble is Trouble.RATE_LIMIT
            if limited or outcome.retry_after is not None:
                self._rate.hold(wait)
            waited += max(wait, SHORT_WAIT_SECONDS)
            if outcome.trouble.permanent or waited > self.options.patience_seconds:
                raise outcome
            if tries >= self.options.tries and not limited:
                raise outcome
            await self._clock.sleep(wait)

    async def page(self, path: str, parameters: Parameters, page: int = 1) -> Answer:
        """One page of a list, by its number."""
        return await self.get(path, {"per_page": self.options.per_page, **parameters, "page": page})

    async def pages(self, path: str, parameters: Parameters | None = None) -> AsyncIterator[list[Any]]:
        """All pages of a list, by the links between them; BadAnswer when they lead round and round."""
        asked: dict[str, str | int] = {"per_page": self.options.per_page, **(parameters or {})}
        seen: set[tuple[tuple[str, str], ...]] = set()
        while True:
            answer = await self.get(path, asked)
            yield answer.items
            if answer.next is None:
                return
            step = tuple(sorted(answer.next.items()))
            if step in seen or len(seen) >= MAX_PAGES or not answer.items:
                raise BadAnswer(f"{path}: pages without an end")
            seen.add(step)
            asked |= answer.next

    async def _once(self, path: str, parameters: Parameters) -> Answer | SourceFailed:
        """The failure is returned and not raised: so nothing of the request hangs on it."""
        url = f"{self._root}/{path}"
        asked = {key: str(value) for key, value in parameters.items()}
        accept = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        try:
            with anyio.fail_after(self.options.request_seconds):
                async with self._http.stream("GET", url, params=asked, headers=accept) as response:
                    return await self._read(path, response)
        except SourceFailed as failure:
            return failure
        except UnsafeAddress as refusal:
            return _failed(Trouble.BAD_CONFIG, str(refusal))
        except (TimeoutError, httpx.TimeoutException):
            return _failed(Trouble.TIMEOUT, f"{path}: no answer in time")
        except Incomplete:
            return _failed(Trouble.CONNECTION, f"{path}: the answer ended in the middle")
        except httpx.TransportError as error:
            return _broken(path, error)

    async def _read(self, path: str, response: httpx.Response) -> Answer:
        status, headers = response.status_code, response.headers
        if 300 <= status < 400:
            raise _failed(Trouble.BAD_CONFIG, f"{path}: status {status}: it redirects, and is not followed")
        if status >= 400:
            after = wait_seconds(headers, datetime.now(UTC)) if status in (429, 503) else None
            raise _failed(trouble_of_http(status), f"{path}: status {status}", after)
        if status != 200:
            raise BadAnswer(f"{path}: status {status}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise BadAnswer(f"{path}: something else than JSON")
        body = await read_body(response, self.options.body_limit_bytes)
        large = len(body) > INLINE_BYTES
        value = await to_thread.run_sync(parse_json, body) if large else parse_json(body)
        following = next_page(headers.get("link", ""), self._host, httpx.URL(f"{self._root}/{path}").path)
        return Answer(value, following, server_date(headers))


def _broken(path: str, error: httpx.TransportError) -> SourceFailed:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return _failed(Trouble.BAD_CONFIG, f"{path}: the server's certificate is not trusted")
    return _failed(Trouble.CONNECTION, f"{path}: {type(error).__name__}")


def _failed(trouble: Trouble, what: str, retry_after: float | None = None) -> SourceFailed:
    return SourceFailed(source="gitlab", trouble=trouble, what=what, retry_after=retry_after)
