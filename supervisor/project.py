"""One database a project: how it is named, where it is, and what OpenMemory is told about it. Pure.

A project's key is the name of its database; the database of a test is `<key>_test_<id>`. PROJECT_KEY and
POSTGRES_DB name the same thing where several projects share a server, so two different values are a mistake
that would mix two projects' facts, and are refused. Only a server for a single project has a name by default.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from schemas.hosts import around_hosts, each_host
from supervisor.errors import TenureError

NAME_BYTES: Final = 63
"""The server cuts a longer name without a word, and two names may become one."""
SINGLE_PROJECT_DATABASE: Final = "engram"
TEST_MARK: Final = "_test_"
LONGEST_SCHEMA: Final = "governance"
OPENMEMORY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "OM_PG_SCHEMA": "openmemory",
        "OM_PG_TABLE": "openmemory_memories",
        "OM_VECTOR_TABLE": "openmemory_vectors",
    }
)
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED: Final = re.compile(r"postgres|template.*|pg_.*")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")


class BadProjectKey(TenureError):
    """the project key cannot name a database: {what}"""

    hint = (
        "a key is lower-case letters, digits and _, begins with a letter and has at most 63, such as proj_a"
    )
    exit_code = 2


class KeyMismatch(TenureError):
    """the project key is {project_key} and POSTGRES_DB is {postgres_db}: each project has one database"""

    hint = (
        "set both to the project's key, or unset POSTGRES_DB; where the server has one project only,"
        " TENURE_DB_SINGLE_PROJECT=1"
    )
    exit_code = 2


class PrefixRefused(TenureError):
    """--schema-prefix is refused: {what}"""

    hint = "a project is kept apart by a database of its own (--project-key); prefixes are for tests"
    exit_code = 2


class NoMapping(TenureError):
    """OpenMemory cannot be told where the database is: {what}"""

    hint = "give one host in TENURE_DATABASE_URL, or db.host and the other db.* keys"
    exit_code = 2


@dataclass(frozen=True)
class ProjectDatabase:
    """The login that works in a project's database, and the one that may create it."""

    database: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    admin_user: str
    admin_password: str = field(repr=False)

    @property
    def dsn(self) -> str:
        return self._url(self.user, self.password)

    @property
    def admin_dsn(self) -> str:
        return self._url(self.admin_user, self.admin_password)

    def _url(self, user: str, password: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        name, secret, database = (quote(part, safe="") for part in (user, password, self.database))
        return f"postgresql://{name}:{secret}@{host}:{self.port}/{database}"


def check_key(key: str, *, testing: bool) -> str:
    """The key, if a database may have that name. What is no name at all is not repeated in the error."""
    if not _IDENTIFIER.fullmatch(key) or len(key) > NAME_BYTES:
        raise BadProjectKey(what="it is no plain name")
    if _RESERVED.fullmatch(key):
        raise BadProjectKey(what=f"{key} is one of the server's own")
    if TEST_MARK in key and not testing:
        raise BadProjectKey(what=f"{key} is a test's database, and ENGRAM_TESTING=1 is not set")
    return key


def database_for_test(key: str, test_id: str) -> str:
    """`<project_key>_test_<id>`, whole or not at all."""
    check_key(key, testing=False)
    return check_key(f"{key}{TEST_MARK}{test_id}", testing=True)


def check_agreement(project_key: str | None, postgres_db: str | None, *, single_project: bool) -> None:
    if project_key is None or postgres_db is None or single_project:
        return
    if project_key != postgres_db:
        raise KeyMismatch(project_key=project_key, postgres_db=postgres_db)


def choose_database(project_key: str, postgres_db: str | None, *, single_project: bool, testing: bool) -> str:
    """The key names the database, except on a server for one project, where POSTGRES_DB does."""
    check_key(project_key, testing=testing)
    check_agreement(project_key, postgres_db, single_project=single_project)
    return postgres_db or SINGLE_PROJECT_DATABASE if single_project else project_key


def check_prefix(prefix: str, *, testing: bool) -> str:
    if not testing:
        raise PrefixRefused(what="the names of the schemas are fixed, and ENGRAM_TESTING=1 is not set")
    room = NAME_BYTES - len(f"_{LONGEST_SCHEMA}")
    if not _IDENTIFIER.fullmatch(prefix) or len(prefix) > room or re.match(r"pg(_|$)", prefix):
        raise PrefixRefused(
            what=f"a prefix is up to {room} lower-case letters, digits and _, begins with a letter, not pg_"
        )
    return prefix


def is_host(text: str) -> bool:
    """A name or an address, nothing that could turn into another part of a URL."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_HOST.fullmatch(text))
    return "%" not in text


def in_database(url: str, database: str) -> str:
    """The same server and login, in another database. The URL is well-formed already."""
    before, hosts, after = around_hosts(url)
    kept = [
        option
        for option in urlsplit(after).query.split("&")
        if option and option.partition("=")[0] not in {"dbname", "database"}
    ]
    query = f"?{'&'.join(kept)}" if kept else ""
    return f"{before}{hosts}/{quote(database, safe='')}{query}"


def openmemory_environment(url: str, *, with_password: bool) -> dict[str, str]:
    """How OpenMemory reaches the database of this URL, and which schema and tables in it are its own."""
    first, *others = each_host(url)
    parts = urlsplit(first)
    if not parts.hostname or others:
        raise NoMapping(what="the URL does not name one host")
    database = unquote(parts.path.removeprefix("/"))
    if not parts.username or not database:
        raise NoMapping(what="the URL names no user or no database")
    where = {
        "OM_PG_HOST": parts.hostname,
        "OM_PG_PORT": str(parts.port or 5432),
        "OM_PG_DB": database,
        "OM_PG_USER": unquote(parts.username),
    }
    if with_password:
        where["OM_PG_PASSWORD"] = unquote(parts.password or "")
    return {**where, **OPENMEMORY}
