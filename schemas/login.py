"""Who logs in: the users of the runtime URLs, the group roles they belong to, and their password verifiers.

The server is sent a SCRAM-SHA-256 verifier (RFC 5803), never a clear password: statements appear in server
logs and in pg_stat_activity, and nobody can log in with a verifier. Pure, except for the random salt.
"""

import hmac
import stringprep
import unicodedata
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac, sha256
from secrets import token_bytes
from urllib.parse import parse_qs, unquote, urlsplit

from schemas.hosts import each_host

OWNER = "tenure_owner"
# The keys of `runtime_urls`, and the group role behind each.
RUNTIME_ROLES: Mapping[str, str] = {
    key: f"tenure_{key}" for key in ("control", "worker", "maintenance", "console", "client")
}
_SCRAM_ITERATIONS = 4096  # the server's own default (scram_iterations)


class BadUrl(ValueError):
    """A URL that cannot be used; the message never quotes it, because a password is in it."""


@dataclass(frozen=True)
class Url:
    user: str | None
    password: str | None = field(repr=False)
    database: str | None


@dataclass(frozen=True)
class Login:
    name: str
    groups: tuple[str, ...]
    password: str | None = field(repr=False)


def parse_url(url: str, what: str) -> Url:
    """The parts of a postgresql:// URL that say who connects to what; `what` names it in the message."""
    parts = urlsplit(each_host(url)[0])
    if parts.scheme not in {"postgresql", "postgres"}:
        raise BadUrl(f"the {what} URL does not start with postgresql://")
    try:
        _ = parts.port
        options = {
            key: values[-1] for key, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()
        }
    except ValueError:
        raise BadUrl(
            f"the {what} URL cannot be read: in a password, / # ? @ are written as %2F %23 %3F %40"
        ) from None
    return Url(
        user=options.get("user") or _decoded(parts.username),
        password=options.get("password") or _decoded(parts.password),
        database=options.get("dbname") or options.get("database") or _decoded(parts.path.removeprefix("/")),
    )


def gather_logins(runtime_urls: Mapping[str, str]) -> tuple[Login, ...]:
    """One login per user; a user that serves several keys belongs to several groups."""
    groups: dict[str, list[str]] = {}
    passwords: dict[str, str | None] = {}
    for key, text in runtime_urls.items():
        if key not in RUNTIME_ROLES:
            raise BadUrl(f"{key} is not one of {', '.join(RUNTIME_ROLES)}")
        url = parse_url(text, key)
        if url.user is None:
            raise BadUrl(f"the {key} URL names no user")
        if passwords.setdefault(url.user, url.password) != url.password:
            raise BadUrl(f"two URLs give different passwords for the user {url.user}")
        groups.setdefault(url.user, []).append(RUNTIME_ROLES[key])
    return tuple(Login(name, tuple(roles), passwords[name]) for name, roles in groups.items())


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What the server stores for this password: enough to check it, not enough to log in."""
    salt = token_bytes(16) if salt is None else salt
    salted = pbkdf2_hmac("sha256", _saslprep(password).encode(), salt, _SCRAM_ITERATIONS)
    stored_key = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_SCRAM_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def _saslprep(password: str) -> str:
    # RFC 4013; the server falls back to the raw password where the profile forbids a character, and so do we.
    if password.isascii():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    return password if not prepared or any(map(_is_forbidden, prepared)) else prepared


def _is_forbidden(char: str) -> bool:
    tables = (
        stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
        stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
        stringprep.in_table_c9, stringprep.in_table_a1,
    )  # fmt: skip
    return any(table(char) for table in tables)


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None
