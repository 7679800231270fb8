"""What the commands print: JSON for scripts, aligned tables for people.

Names, payloads and output come from users: they are never read as markup, and no control character of theirs
reaches a terminal. Ages are measured by the database's clock, which comes with the rows.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import date, datetime
from io import StringIO
from shutil import get_terminal_size
from typing import Any, Final, TextIO, TypeAlias
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

from supervisor.calendar_types import parse_time

PIPED_WIDTH: Final = 250  # a pipe has no width; what reads it wants whole lines
STATE_STYLES: Final[Mapping[str, str]] = {
    "PENDING": "cyan",
    "ASSIGNED": "blue",
    "RUNNING": "bold blue",
    "CONFIRMING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "CANCELED": "bright_black",
    "ORPHANED": "magenta",
    "active": "green",
    "draining": "yellow",
    "gone": "bright_black",
    "silent": "red",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}
Cell: TypeAlias = str | int | float | Text | None


def prepare_streams() -> None:
    """A terminal that cannot show a character shows its escape instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, default=_jsonable, indent=2) + "\n")


def print_json_line(data: Any) -> None:
    """One object a line, at once: for what goes on."""
    sys.stdout.write(json.dumps(data, default=_jsonable) + "\n")
    sys.stdout.flush()


def note(message: str) -> None:
    """Beside the answer, and only for somebody who watches."""
    if sys.stderr.isatty():
        _console(sys.stderr).print(Text(clean(message), "bright_black"), soft_wrap=True)


def print_error(message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        sys.stderr.write(json.dumps({"error": message, "hint": hint}) + "\n")
        return
    console = _console(sys.stderr)
    console.print(Text("error: ", "bold red"), clean(message, keep="\n"), sep="", soft_wrap=True)
    if hint:
        console.print(Text("what to do: ", "bold"), clean(hint, keep="\n"), sep="", soft_wrap=True)


def say(*parts: Cell) -> None:
    """A line of a sentence; strings are cleaned."""
    _console(sys.stdout).print(*map(_cell, parts), sep="", soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    if table.row_count:
        _print_block(table)
    else:
        say(empty)


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, aligned; what is not there is left out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        if value is not None and value != "":
            table.add_row(name, _cell(value))
    _print_block(table)


def state(name: str, continuation: str | None = None) -> Text:
    shown = continuation if continuation == "CONFIRMING" else name
    return Text(shown, STATE_STYLES.get(shown, ""))


def age(now: datetime, then: datetime | str | None) -> str:
    """How long ago, or in how long; '' for never."""
    if then is None:
        return ""
    moment = parse_time(then) if isinstance(then, str) else then
    seconds = (now - moment).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = int(seconds % size // part)
            return f"{int(seconds // size)}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{int(seconds)}s"


def clean(text: str, keep: str = "") -> str:
    """Without anything that could steer a terminal."""
    return "".join(char if char.isprintable() or char in keep else f"\\x{ord(char):02x}" for char in text)


def screenful(paint: Callable[[], None]) -> None:
    """What `paint` prints, in the place of what was there: on a terminal over it, elsewhere below it."""
    frame = _Frame(like=sys.stdout)
    with redirect_stdout(frame):
        paint()
    lines = frame.getvalue().splitlines()
    if not sys.stdout.isatty():
        sys.stdout.write("\n".join([*lines, "", ""]))
    else:
        height = get_terminal_size().lines - 1
        kept = (
            lines
            if len(lines) <= height
            else [*lines[: height - 1], f"... {len(lines) - height + 1} more lines"]
        )
        # over the last frame, each line to its end and then nothing below: no flicker, and no rest of it
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in kept) + "\x1b[J")
    sys.stdout.flush()


class _Frame(StringIO):
    """Keeps what is printed, with the colours of the stream that it is for."""

    def __init__(self, like: TextIO) -> None:
        super().__init__()
        self._like = like

    def isatty(self) -> bool:
        return self._like.isatty()


def _print_block(table: Table) -> None:
    """Without the spaces that fill the last column: what is copied or piped has none."""
    console = _console(sys.stdout)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _cell(value: Cell) -> Text:
    return value if isinstance(value, Text) else Text("" if value is None else clean(str(value)))


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
