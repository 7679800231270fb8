"""What users wrote, made harmless to look at.

Templates escape markup by themselves. What is left are characters that are not what they look like: terminal
sequences, control characters, and marks that turn the direction of the text around them. They are shown as
what they are, by number.
"""

import json
import re
import shlex
from functools import cache
from typing import Any, Final

from markupsafe import Markup, escape

COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
WORKER: Final = re.compile(r"(?P<host>.*)-(?P<boot>[0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)
RUN: Final = re.compile(r"\b([Rr]un [1-9][0-9]{0,18})\b", re.ASCII)
BLANKS: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that no font draws; those behind emoji are left alone."""
LONGEST_JSON: Final = 20_000


def visible(text: object, keep: str = "") -> str:
    """Every character can be seen; those that cannot stand as \\x1b or \\u202e."""
    return _unusual(keep).sub(_shown, str(text))


def short_worker(worker_id: str) -> str:
    """Host and the beginning of the boot's number: enough to tell replicas apart at a glance."""
    found = WORKER.fullmatch(worker_id)
    name = f"{found['host'][:24]}·{found['boot']}" if found else worker_id[:40]
    return visible(name)


def shell_word(text: object) -> str:
    """One word of a command that people copy from a page, whatever is in it."""
    return shlex.quote(visible(text))


def process(actor: str) -> str:
    """Who acted, in the console's words: what the records call a worker is a replica here."""
    return "replica" if actor == "worker" else actor


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def commands(text: str) -> Markup:
    """What stands between backticks, as code."""
    parts = visible(text).split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def run_links(text: str) -> Markup:
    """What it names as `run 7`, as a link."""
    parts = RUN.split(visible(text))
    return Markup().join(
        Markup('<a href="/runs/{}">{}</a>').format(part[4:], part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def log_text(body: str) -> str:
    """A log without its colours; line ends and tabs stay, everything else that steers a terminal is shown."""
    return visible(COLOURS.sub("", body).replace("\r\n", "\n"), keep="\n\t")


def pretty_json(value: Any) -> str:
    """JSON over several lines, cut where it is too long to look at."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    begin = visible(text[:LONGEST_JSON], keep="\n")
    return begin if len(text) <= LONGEST_JSON else f"{begin}\n... {len(text)} characters"


@cache
def _unusual(keep: str) -> re.Pattern[str]:
    """Stretches that are worth a look; most text has few, and is passed over at the speed of the machine."""
    return re.compile(f"[^ -~{re.escape(keep)}]+")


def _shown(stretch: re.Match[str]) -> str:
    text = stretch[0]
    if text.isprintable() and not BLANKS.search(text):
        return text
    return "".join(one if one.isprintable() and not BLANKS.match(one) else _escape(one) for one in text)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
