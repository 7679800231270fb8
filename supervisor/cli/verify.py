"""`tenure verify`: did everything that happened keep the promises?"""

import re
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from supervisor.cli import output, session
from supervisor.cli.artifacts_report import Progress
from supervisor.cli.inputs import parse_instant
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.store import Store
from supervisor.verify import live, recorded
from supervisor.verify.properties import PROPERTIES
from supervisor.verify.report import Finding, Report

STYLES: Final = {"HOLDS": "green", "BROKEN": "bold red", "INCONCLUSIVE": "yellow"}
AGO: Final = re.compile(r"(\d{1,6})([smhd])")
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Since = Annotated[
    str | None,
    typer.Option(help="Only what moved since then: 2h, 7d or an ISO 8601 time.", show_default="all"),
]
Root = Annotated[int | None, typer.Option(help="Only the root of this run.", show_default="all", min=1)]
History = Annotated[
    Path | None, typer.Option(help="Check a recorded history instead of the database.", show_default=False)
]


def verify(since: Since = None, root: Root = None, history: History = None, as_json: Json = False) -> int:
    """Replay what happened, and say whether every promise was kept.

    It only reads, root by root, and may run beside a busy system: what moves meanwhile is no fault. What
    retention has removed is not missed. Properties that need more than a database keeps (executions, calls,
    the order of effects) are named; a recorded history has them (docs/verify.md).

    Exits 0 when everything holds, 1 when something is broken or, with --history, could not be told.

    Examples:

    - `tenure verify`
    - `tenure verify --since 24h`
    - `tenure verify --root 7 --json | jq '.findings[]'`
    - `tenure verify --history ./history`
    """
    if history is not None:
        if since is not None or root is not None:
            raise BadInput(what="--history is checked whole: without --since and --root")
        report = recorded.check(history)
    else:
        report = session.run(partial(_check, since, root))
    if as_json:
        output.print_json(
            {"ok": report.verdict == "HOLDS", **report.as_json(), "unchecked": _unchecked(report)}
        )
    else:
        _show(report)
    return 0 if report.verdict == "HOLDS" else 1


async def _check(since: str | None, root: int | None, store: Store) -> Report:
    moment = None if since is None else _moment(since, session.wall_clock())
    return await live.check(store, moment, root, Progress(_words))


def _moment(text: str, now: datetime) -> datetime:
    if found := AGO.fullmatch(text):
        return now - timedelta(**{UNITS[found[2]]: int(found[1])})
    try:
        return parse_instant(text)
    except BadInput:
        raise BadInput(what=f"--since {text!r}: write 90m, 24h, 7d or 2030-01-31T09:00:00Z") from None


def _words(progress: live.Progress) -> str:
    about = f" of about {progress.about}" if progress.about > progress.moves else ""
    return f"{progress.roots} roots, {progress.moves}{about} moves"


def _unchecked(report: Report) -> list[str]:
    return [one.id for one in PROPERTIES if one.id not in report.properties]


def _show(report: Report) -> None:
    output.print_table(
        ["ID", "RESULT", "PROPERTY"],
        ([one.id, _result(report, one.id), one.statement] for one in PROPERTIES),
        empty="",
    )
    for finding in report.findings:
        _show_finding(finding)
    for doubt in report.doubts:
        output.say("not told: ", doubt)
    figures = ", ".join(f"{name} {value:g}" for name, value in report.figures.items() if value)
    output.say("")
    output.say(Text(report.verdict, STYLES[report.verdict]), f" {figures}".rstrip())
    if _unchecked(report):
        output.say("A result of - needs a recorded history; a database alone cannot show it.")


def _result(report: Report, name: str) -> Text:
    result = report.properties.get(name)
    return Text(result, STYLES[result]) if result is not None else Text("-", "bright_black")


def _show_finding(finding: Finding) -> None:
    output.say("")
    output.say(Text(f"{finding.property} ", STYLES["BROKEN"]), finding.text)
    for line in finding.excerpt:
        output.say("    ", line)
