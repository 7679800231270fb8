"""Hostile text, and a database in which every text is hostile that the database lets be so. Not a test.

A text column is poisoned without being named here, so a new one is too. What was there stays at the
beginning; names get the same end in every table, so that rows go on naming each other.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

Connection = asyncpg.Connection
PRODUCT: Final = "62615533"
"""What a template engine makes of the product in MARKUP."""
SHORT: Final = "\"'><img data-pwn src=x onerror=\"window.__pwned='short'\">{{7919*7907}}\u202e\x1b[2J\u2028"
MARKUP: Final = (
    "</script></title></textarea></style></option></select></datalist></svg></pre></code>"
    "<script data-pwn>window.__pwned='script'</script>"
    "<img data-pwn src=http://203.0.113.1/x onerror=window.__pwned='img'>"
    '"><svg data-pwn onload="window.__pwned=\'svg\'">'
    "'><iframe data-pwn srcdoc='<script>parent.__pwned=1</script>'></iframe>"
    "<details data-pwn open ontoggle=window.__pwned='toggle'>"
    "<style data-pwn>*{display:none}</style>"
    "<a data-pwn href=javascript:window.__pwned='href'>go</a>"
    "<base data-pwn href=//203.0.113.1/><form data-pwn action=//203.0.113.1/><button>Log in</button></form>"
    "&lt;script data-pwn&gt;window.__pwned=1&lt;/script&gt;<!-- --> ]]> \\u003cscript\\u003e"
    "{{7919*7907}}${7919*7907}{%raw%}"
)
BREAKOUT: Final = (
    "\" autofocus onfocus=window.__pwned='focus' data-pwn=\"' onmouseover=window.__pwned='over' data-pwn='"
    "` onclick=window.__pwned='click' data-pwn=`"
)
STEERING: Final = (
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u202c\u2066\u2069\u200e\u061c\u200b"
    "\u2028\u2029\ufeff\u3164\U000e0100\r\x08\x7f\n\nevent: run\ndata: {}\n\n"
)
LONG: Final = f"{SHORT}{BREAKOUT}{MARKUP}{STEERING}"
SCHEMES: Final = (
    "javascript:window.__pwned='url'//",
    "JaVaScRiPt:window.__pwned='url'//https://",
    "\tjavascript:window.__pwned='url'",
    "data:text/html,<script>parent.__pwned=1</script>",
    "//203.0.113.1/",
    "https:javascript:window.__pwned='url'",
)
ENDS: Final = (LONG, f"{SHORT}{BREAKOUT}{MARKUP}\u202e", f"{BREAKOUT}{MARKUP}", SHORT, SHORT[:60])
"""The first that a column takes is its own: some have a length, some no control characters."""
MARK: Final = re.compile(r"\u27e6([a-z_]+(?:\.[a-z_]+)+)\u27e7")
"""In a text: the column that it came from."""

REFUSALS: Final = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
    asyncpg.RaiseError,
    asyncpg.ProgramLimitExceededError,  # too long for an index
)
NAMES: Final = re.compile("worker|holder|locked_by|domains?$|entity_|workspace")
"""Columns whose names stand in addresses and other tables: all of them get the same short end."""
NAME: Final = f"\u27e6a.name\u27e7{SHORT}"
OPEN_KEYS: Final = frozenset({"payload", "result", "before", "after", "payload_json"})
"""JSON in which names are chosen outside too."""
OURS: Final = re.compile(
    r"supervisor\.(schema_\w+|task_type)\..*|supervisor\.setting\.name"
    r"|.*\.(from_state|to_state|continuation_state|from_status|to_status)"
    r"|.*\.(file_hash|blob_hash|sha256|payload_hash|storage_key|r2_key|thumb_key|group_key|output_relpath|log_ref)"
    r"|scm\.patch_blobs\.uri|public\.media_blobs\.mime_type"
)
"""Columns whose texts the code makes or finds rows and files by: states, digests, places in the store."""

COLUMNS: Final = r"""
    SELECT n.nspname || '.' || c.relname AS table, a.attname AS column, t.typname AS type
      FROM pg_attribute a
      JOIN pg_class c ON c.oid = a.attrelid
      JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_type t ON t.oid = a.atttypid
     WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
       AND t.typname IN ('text', 'varchar', '_text', 'json', 'jsonb')
       AND n.nspname !~ '^(pg_|information_schema$)'
     ORDER BY 1, 2"""


@dataclass(frozen=True)
class Column:
    table: str
    name: str
    type: str

    @property
    def mark(self) -> str:
        """Partitions share the name of their table."""
        return re.sub(r"_(?:default|p?\d+(?:_\d+)*)(?=\.|$)", "", self.table) + f".{self.name}"


async def poison(connection: Connection) -> list[str]:
    """Make every text hostile that the database lets be; return the marks of those columns."""
    rows = await connection.fetch(COLUMNS)
    found = [Column(row["table"], row["column"], row["type"]) for row in rows]
    theirs = [column for column in found if not OURS.fullmatch(column.mark)]
    return [column.mark for column in theirs if await _poison(connection, column)]


async def _poison(connection: Connection, column: Column) -> bool:
    for end in ENDS:
        try:
            async with _unguarded(connection):
                return await _put(connection, column, end)
        except REFUSALS:
            continue
    return False


async def _put(connection: Connection, column: Column, end: str) -> bool:
    table, name = column.table, f'"{column.name}"'
    if column.type.startswith("json"):
        return await _put_json(connection, column, f"\u27e6{column.mark}\u27e7{end}")
    if column.type == "_text":
        tag = await connection.execute(f"UPDATE {table} SET {name} = {name} || ARRAY[$1::text]", NAME)
    elif NAMES.search(column.name):
        tag = await connection.execute(
            f"UPDATE {table} SET {name} = {name} || $1 WHERE {name} IS NOT NULL", NAME
        )
    else:
        tag = await connection.execute(
            f"""UPDATE {table} SET {name} = coalesce({name}, '') || $1 WHERE {name} IS NOT NULL
                   OR NOT EXISTS (SELECT FROM {table} WHERE {name} IS NOT NULL)""",
            f"\u27e6{column.mark}\u27e7{end}",
        )
    return not tag.endswith(" 0")


async def _put_json(connection: Connection, column: Column, text: str) -> bool:
    table, name = column.table, f'"{column.name}"'
    rows = await connection.fetch(f"SELECT ctid, {name}::text AS was FROM {table} WHERE {name} IS NOT NULL")
    for row in rows:
        value = _ended(json.loads(row["was"]), text)
        if isinstance(value, dict) and column.name in OPEN_KEYS:
            value[text] = text
        await connection.execute(
            f"UPDATE {table} SET {name} = $1::text::{column.type} WHERE ctid = $2",
            json.dumps(value),
            row["ctid"],
        )
    return bool(rows)


def _ended(value: Any, end: str) -> Any:
    """Every text in it with this end."""
    match value:
        case str():
            return value + end
        case list():
            return [_ended(one, end) for one in value]
        case dict():
            return {name: _ended(one, end) for name, one in value.items()}
    return value


@asynccontextmanager
async def _unguarded(connection: Connection) -> AsyncIterator[None]:
    """Without triggers and foreign keys; what a table itself refuses stays refused."""
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        yield


def columns_in(text: str) -> Iterator[str]:
    """The columns whose texts can be seen in it."""
    return (found[1] for found in MARK.finditer(text))
