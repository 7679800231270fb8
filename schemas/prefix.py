"""The five schemas of the ledger under other names, for tests that share a database server. Pure.

`<prefix>_identity` and the others are made from the same files, with each mention of a schema rewritten:

- in code, what stands before a dot, and the names after the word SCHEMA;
- in a literal, the names of things that the files create, such as nextval('scm.run_number'). Any other
  literal is data ('scm.sync' is a kind of item) and stays as it is.

Renaming the schemas afterwards would not do: the body of a function is text, and names its tables in it.
The queries of replicas have the plain names. A database with a prefix is for statements of a test's own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from schemas import Migration, Source
from supervisor.errors import BadInput, TenureError

SCHEMAS: Final = ("identity", "logbook", "scm", "analysis", "governance")
_ANY: Final = "|".join(SCHEMAS)
_TOKEN: Final = re.compile(
    rf"""(?P<aside> --[^\n]* | /\*.*?\*/ | "(?:[^"]|"")*" )
       | (?P<literal> '(?:[^']|'')*' )
       | (?P<spaces> \b(?i:SCHEMA)\s+ (?:(?i:IF\s+(?:NOT\s+)?EXISTS)\s+)? \w+ (?:\s*,\s*\w+)* )
       | (?P<space> (?<![\w.]) (?:{_ANY}) (?=\.[a-z_]) )""",
    re.VERBOSE | re.DOTALL,
)
_WORD: Final = re.compile(rf"\b(?:{_ANY})\b")
_THING: Final = re.compile(rf"(?<![\w.])(?:{_ANY})\.\w+")
_CREATED: Final = re.compile(rf"\bCREATE\s[A-Z\s]*?\b((?:{_ANY})\.\w+)")
_SAFE: Final = re.compile(r"[a-z][a-z0-9_]{0,51}")


class OtherNames(TenureError):
    """the schemas of this database are named as in {there}, and {wanted} is asked for: never both"""

    hint = "use the same --schema-prefix as before (none, if there was none), or another database"
    exit_code = 4


@dataclass(frozen=True)
class Prefix:
    text: str
    created: frozenset[str]

    def render(self, sql: str) -> str:
        return _TOKEN.sub(self._token, sql)

    def _token(self, found: re.Match[str]) -> str:
        token = found[0]
        match found.lastgroup:
            case "space":
                return f"{self.text}_{token}"
            case "spaces":
                return _WORD.sub(lambda word: f"{self.text}_{word[0]}", token)
            case "literal":
                return _THING.sub(self._thing, token)
            case _:
                return token

    def _thing(self, found: re.Match[str]) -> str:
        return f"{self.text}_{found[0]}" if found[0] in self.created else found[0]


@dataclass(frozen=True)
class Prefixed(Source):
    """The files of another source as they read under a prefix; their digests are those of that text."""

    prefix: Prefix

    def migrations(self) -> tuple[Migration, ...]:
        rendered = ((migration, self.prefix.render(migration.sql)) for migration in super().migrations())
        return tuple(
            replace(migration, sql=sql, sha256=sha256(sql.encode()).hexdigest())
            for migration, sql in rendered
        )

    def functions(self) -> tuple[str, ...]:
        return tuple(self.prefix.render(text) for text in super().functions())


def identity_of(source: Source) -> str:
    """What the first of the five schemas is called by this source."""
    return f"{source.prefix.text}_{SCHEMAS[0]}" if isinstance(source, Prefixed) else SCHEMAS[0]


def prefix_for(source: Source, text: str) -> Prefix:
    if not _SAFE.fullmatch(text):
        raise BadInput(what="a prefix of schemas is up to 52 lower-case letters, digits and _")
    texts = [*(migration.sql for migration in source.migrations()), *source.functions()]
    return Prefix(text, frozenset(_created(texts)))


def under(prefix: Prefix, sources: Mapping[str, Source]) -> dict[str, Source]:
    """A package may speak of the five schemas too."""
    return {name: Prefixed(source.root, prefix) for name, source in sources.items()}


def _created(texts: Iterable[str]) -> Iterable[str]:
    return (name for text in texts for name in _CREATED.findall(text))
