"""Who a request is: tokens and sessions compared with the database, and remembered for a moment.

A credential that was right is believed for TRUST_SECONDS from the moment the database was asked, and never
longer than it lives: so a revocation is in force everywhere within TRUST_SECONDS of its commit. After that
only the database is asked again; argon2 runs once for each token in a process. What is not proven yet waits
for its turn at the turnstile; what was right before does not. A token of the database and the cookie of a
session have 256 random bits: nobody guesses them, so wrong ones are not counted, and nobody can use up the
guesses of somebody else who has the right one.

The token of the environment, or of the state directory, needs no database, but people choose the first: wrong
guesses at it are counted and slowed (limiter.py). A guess is all that has not the form of a token of the
database. The code of a link has 256 random bits, as a session has.
"""

import hmac
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from supervisor.api.credentials import Given, digest_of, form_token, new_session, shared_proof
from supervisor.api.limiter import Guesses, Lines, Turnstile
from supervisor.api.principal import SHARED, Principal, token_principal
from supervisor.api.recent import Recent
from supervisor.api.server import is_loopback
from supervisor.api.tokens import Token, decoy
from supervisor.clock import Clock
from supervisor.config import Settings
from supervisor.errors import BadSettings, TenureError
from supervisor.login_codes import LoginCodes
from supervisor.store import Store

TRUST_SECONDS: Final = 10.0
USE_SECONDS: Final = 300.0
REMEMBERED: Final = 4096
AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Asking:
    principal: Principal
    token_id: int | None = None
    form_token: str = field(default="", repr=False)
    """Of a session: what its forms must bring along."""
    by_hand: bool = False
    """Sent by whoever asks; a cookie comes with every request of a browser."""


Found = tuple[Asking, float | None]


class Access:
    def __init__(self, settings: Settings, store: Store, clock: Clock | None = None) -> None:
        self._shared = settings.api_token.get_secret_value().encode() if settings.api_token else b""
        self._store = store
        self._clock = clock or Clock()
        self._codes = LoginCodes(settings.state_dir)
        self._guesses = Guesses(self._clock)
        self._turnstile = Turnstile(AT_ONCE)
        self._right: Recent[bytes, tuple[Asking, float]] = Recent(REMEMBERED)
        self._wrong: Recent[bytes, float] = Recent(REMEMBERED)
        # for each credential that was ever right, the hash that it fitted
        self._proven: Recent[bytes, str] = Recent(REMEMBERED)
        self._noted: Recent[int, float] = Recent(REMEMBERED)
        # one look at a time for each credential: a browser's twenty requests need one answer
        self._looking: Lines[bytes] = Lines()

    async def who(self, given: Given, address: str) -> Asking | None:
        """A token that is wrong is not made good by anything else that came with it."""
        if given.bearer is not None:
            return await self.by_token(given.bearer, address)
        return None if given.session is None else await self.by_session(given.session, address)

    def was_right(self, given: Given) -> bool:
        """Whether it has proven something here, and not yet been seen to be over. Never for the shared token.

        That one is guessed: nobody may see sooner than by the answer that a guess was right.
        """
        credential = given.bearer if given.bearer is not None else given.session
        return credential is not None and digest_of(credential) in self._proven

    async def is_still_known(self, given: Given, address: str) -> bool:
        """Whether what let a request in still does. What was right does not wait for those who guess."""
        if given.bearer is not None and self._is_shared(digest_of(given.bearer)):
            return True
        return await self.who(given, address) is not None

    async def by_token(self, token: bytes, address: str) -> Asking | None:
        digest = digest_of(token)
        if self._is_shared(digest):
            await self._guesses.weigh(address, right=True)
            return Asking(SHARED, by_hand=True)
        if Token.parse(token) is None:
            if self._shared:
                await self._guesses.weigh(address, right=False)
            return None
        return await self._look(digest, address, partial(self._find_token, token, digest))

    async def by_session(self, session: bytes, address: str) -> Asking | None:
        digest = digest_of(session)
        return await self._look(digest, address, partial(self._find_session, session, digest))

    async def open_session(self, token: bytes, address: str, before: bytes | None) -> bytes | None:
        """A new session, in place of the one that the browser had before."""
        asking = await self.by_token(token, address)
        return None if asking is None else await self._begin_session(asking, before)

    async def open_session_by_code(self, code: str, address: str, before: bytes | None) -> bytes | None:
        """A new session of the shared token, for who may use the state directory. The code is used up."""
        async with self._turnstile.turn(address):
            if not self._shared or not await anyio.to_thread.run_sync(self._codes.take, code):
                return None
        return await self._begin_session(Asking(SHARED), before)

    async def _begin_session(self, asking: Asking, before: bytes | None) -> bytes | None:
        session = new_session()
        proof = shared_proof(session, self._shared) if asking.token_id is None else None
        replaced = None if before is None else digest_of(before)
        opened = await self._store.value(
            "open_session", digest_of(session), asking.token_id, proof, asking.principal.name, replaced
        )
        if replaced is not None:
            self._right.drop(replaced)
        if not opened:
            return None
        self._proven.put(digest_of(session), "")
        return session

    async def close_session(self, session: bytes) -> None:
        await self._store.value("close_session", digest_of(session))
        self._right.drop(digest_of(session))

    def _is_shared(self, digest: bytes) -> bool:
        return bool(self._shared) and hmac.compare_digest(digest, digest_of(self._shared))

    async def _look(
        self, digest: bytes, address: str, find: Callable[[], Awaitable[Found | None]]
    ) -> Asking | None:
        if (asking := self._remembered(digest)) is not None:
            return asking
        async with self._looking.turn(digest):
            if (asking := self._remembered(digest)) is not None:
                return asking
            now = self._clock.now()
            if (wrong_until := self._wrong.get(digest)) is not None and now < wrong_until:
                return None
            async with AsyncExitStack() as turn:
                if digest not in self._proven:
                    await turn.enter_async_context(self._turnstile.turn(address))
                # whoever has gone leaves the line, and never a query that is under way: he may ask again
                with anyio.CancelScope(shield=True):
                    found = await find()
            if found is None:
                self._right.drop(digest)
                self._proven.drop(digest)
                self._wrong.put(digest, now + TRUST_SECONDS)
                return None
            asking, seconds = found
            trusted = TRUST_SECONDS if seconds is None else min(TRUST_SECONDS, seconds)
            self._right.put(digest, (asking, now + trusted))
            return asking

    def _remembered(self, digest: bytes) -> Asking | None:
        kept = self._right.get(digest)
        return kept[0] if kept is not None and self._clock.now() < kept[1] else None

    async def _find_token(self, text: bytes, digest: bytes) -> Found | None:
        token = Token.parse(text)
        if token is None:
            return None
        row = await self._store.row("find_token", token.id)
        proven = self._proven.get(digest)
        if row is None and proven is not None:
            return None
        if row is None or proven != row["hash"]:
            encoded = None if row is None else row["hash"]
            if not await anyio.to_thread.run_sync(_fits, token, encoded) or row is None:
                return None
            self._proven.put(digest, row["hash"])
        await self._note_use(token.id)
        asking = Asking(token_principal(row["name"], row["role"]), token_id=token.id, by_hand=True)
        return asking, row["seconds"]

    async def _find_session(self, session: bytes, digest: bytes) -> Found | None:
        row = await self._store.row("use_session", digest)
        if row is None:
            return None
        if row["shared_proof"] is None:
            principal = token_principal(row["name"], row["role"], digest.hex())
        elif self._shared and hmac.compare_digest(row["shared_proof"], shared_proof(session, self._shared)):
            principal = replace(SHARED, session=digest.hex())
        else:
            return None
        self._proven.put(digest, "")
        return Asking(principal, form_token=form_token(session)), row["seconds"]

    async def _note_use(self, token_id: int) -> None:
        noted = self._noted.get(token_id)
        if noted is not None and self._clock.now() - noted < USE_SECONDS:
            return
        self._noted.put(token_id, self._clock.now())
        with suppress(TenureError):  # nice to know, and no reason to refuse anybody
            await self._store.value("note_token_use", token_id)


def _fits(token: Token, encoded: str | None) -> bool:
    return token.fits(encoded or decoy())


async def check_entrance(settings: Settings, store: Store) -> None:
    """Refuse to be reachable from other machines before anybody has a token."""
    if is_loopback(settings.http_host) or settings.api_token is not None:
        return
    if not await store.value("has_token"):
        raise BadSettings(
            what=f"TENURE_HTTP_HOST={settings.http_host} is not loopback, TENURE_API_TOKEN is unset, and "
            "there is no token (`tenure token create NAME --role admin`)"
        )
