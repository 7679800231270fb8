"""What a request brings to say who it is: a bearer token, or the cookie of a session. Pure."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Scope

COOKIE: Final = "tenure_session"
_COOKIE_FORM: Final = re.compile(rb"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Given:
    bearer: bytes | None = field(default=None, repr=False)
    session: bytes | None = field(default=None, repr=False)
    stale_cookie: bool = False
    """There is a cookie of ours that cannot be a session."""


class Ambiguous(Exception):
    """Two answers to the question who asks; picking one of them would let somebody else pick."""


def given_by(scope: Scope) -> Given:
    bearers = [token for token in map(_bearer, _values(scope, b"authorization")) if token]
    if len(set(bearers)) > 1:
        raise Ambiguous
    cookies = set(_cookies(scope))
    session = cookies.pop() if len(cookies) == 1 else b""
    fits = _COOKIE_FORM.fullmatch(session) is not None
    return Given(
        bearers[0] if bearers else None,
        session if fits else None,
        bool(session or cookies) and not fits,
    )


def new_session() -> bytes:
    return secrets.token_urlsafe(32).encode()


def digest_of(credential: bytes) -> bytes:
    """What is kept of a credential in memory, and of a session in the database."""
    return hashlib.sha256(credential).digest()


def form_token(session: bytes) -> str:
    """What a form of this session has in it; only who knows the session can make it, and not the reverse."""
    return hmac.new(session, b"tenure form", hashlib.sha256).hexdigest()


def shared_proof(session: bytes, shared: bytes) -> bytes:
    """That the session began with this token of the environment; without the cookie it says nothing."""
    return hmac.digest(session, b"tenure shared\0" + shared, "sha256")


def _bearer(value: bytes) -> bytes:
    """Another scheme is not for us: a proxy in front may have one of its own."""
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _cookies(scope: Scope) -> Iterator[bytes]:
    for value in _values(scope, b"cookie"):
        for pair in value.split(b";"):
            name, _, content = pair.strip().partition(b"=")
            if name == COOKIE.encode():
                yield content


def _values(scope: Scope, name: bytes) -> Iterator[bytes]:
    return (value for key, value in scope["headers"] if key.lower() == name)
