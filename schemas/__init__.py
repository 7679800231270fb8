"""The SQL that ships in the wheel, and the loader that reads it.

Three rooms, each with one rule:

- `migrations/NNNN_what.sql`: applied once each in the order of their numbers, one transaction each; never
  edited after a release, because the sha256 of the text is recorded and compared at every `tenure migrate`;
- `functions/<noun>.sql`: created again after the migrations when any of them changed, in the order of names;
- `queries/<noun>.sql`: `-- name: verb_noun`, one comment line that says why, then one statement. Names are
  unique over all files. (`bootstrap/` has the same form; only the migrator uses it. So has `leases/`,
  with braces for what a lease contract fills in.)

A file that breaks its rule is refused when it is read. Everything here is pure: no connection, no clock.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

_MIGRATION_FILE = re.compile(r"(?P<number>\d{4})_(?P<name>[a-z][a-z0-9_]*)\.sql")
_QUERY_HEAD = re.compile(r"^-- name:(.*)$", re.MULTILINE)
_QUERY_NAME = re.compile(r" (?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)")
_WHY = re.compile(r"-- (?P<why>\S.*)")


class BadSchemaFile(ValueError):
    """A file under `schemas/` that does not follow the form of its room."""


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str
    sha256: str


@dataclass(frozen=True)
class Query:
    name: str
    why: str
    sql: str


@dataclass(frozen=True)
class Source:
    """A directory with the rooms above; the shipped one, or a test's own."""

    root: Traversable

    def migrations(self) -> tuple[Migration, ...]:
        """All migrations by number, which runs from 1 without a gap."""
        found = tuple(_migration(file) for file in _sql_files(self.root / "migrations"))
        numbers = [migration.number for migration in found]
        if numbers != list(range(1, len(found) + 1)):
            raise BadSchemaFile(f"migrations are not numbered 1, 2, 3, ...: {numbers}")
        return found

    def functions(self) -> tuple[str, ...]:
        return tuple(_text(file) for file in _sql_files(self.root / "functions"))

    def queries(self) -> Mapping[str, Query]:
        return _named_queries(self.root / "queries")

    def schema_version(self) -> int:
        return max((migration.number for migration in self.migrations()), default=0)

    def functions_sha256(self) -> str:
        """One hash over all function files, so that a changed, added or removed one is seen."""
        return _digest("\0".join(self.functions()))


SHIPPED = Source(files(__name__))


@cache
def migrations() -> tuple[Migration, ...]:
    return SHIPPED.migrations()


@cache
def functions() -> tuple[str, ...]:
    return SHIPPED.functions()


@cache
def queries() -> Mapping[str, Query]:
    return SHIPPED.queries()


@cache
def bootstrap() -> Mapping[str, Query]:
    """The statements of the migrator itself: `schemas.connection.sql` gives them out."""
    return _named_queries(SHIPPED.root / "bootstrap")


@cache
def lease_templates() -> Mapping[str, Query]:
    """What `supervisor.lease_sql` fills in."""
    return _named_queries(SHIPPED.root / "leases")


def schema_version() -> int:
    """The number of the newest migration: the schema this code was written for."""
    return max((migration.number for migration in migrations()), default=0)


def parse_queries(text: str, where: str) -> Iterator[Query]:
    """The named queries of one file; `where` is for the message when one is malformed."""
    before, *parts = _QUERY_HEAD.split(text)
    if any(line.strip() and not line.startswith("--") for line in before.splitlines()):
        raise BadSchemaFile(f"{where}: a statement stands before the first `-- name:` line")
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        name = _QUERY_NAME.fullmatch(head.rstrip())
        if name is None:
            raise BadSchemaFile(f"{where}: `-- name:{head}` is not of the form `-- name: verb_noun`")
        yield _query(name["name"], body, where)


def _query(name: str, body: str, where: str) -> Query:
    why_line, _, rest = body.lstrip("\r\n").partition("\n")
    why = _WHY.fullmatch(why_line.rstrip())
    if why is None:
        raise BadSchemaFile(f"{where}: {name} has no comment line that says why")
    sql = rest.strip().removesuffix(";").rstrip()
    if not any(line.strip() and not line.lstrip().startswith("--") for line in sql.splitlines()):
        raise BadSchemaFile(f"{where}: {name} has no statement")
    return Query(name, why["why"], sql)


def _named_queries(room: Traversable) -> Mapping[str, Query]:
    found: dict[str, Query] = {}
    for file in _sql_files(room):
        for query in parse_queries(_text(file), file.name):
            if query.name in found:
                raise BadSchemaFile(f"{file.name}: the name {query.name} is taken")
            found[query.name] = query
    return MappingProxyType(found)


def _migration(file: Traversable) -> Migration:
    match = _MIGRATION_FILE.fullmatch(file.name)
    if match is None:
        raise BadSchemaFile(f"{file.name} is not of the form NNNN_what.sql")
    sql = _text(file)
    return Migration(int(match["number"]), match["name"], sql, _digest(sql))


def _sql_files(room: Traversable) -> Iterable[Traversable]:
    if not room.is_dir():
        return ()
    return sorted((file for file in room.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)


def _text(file: Traversable) -> str:
    # A checkout with CRLF line ends is the same migration.
    return file.read_bytes().decode("utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
