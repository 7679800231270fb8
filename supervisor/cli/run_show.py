"""`tenure run show` and `run why`: one run, and what holds it up."""

import json
from datetime import datetime
from typing import Any

from supervisor.cli import output, session
from supervisor.cli.inputs import RunId
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import NotFound
from supervisor.store import Record
from supervisor.stored_json import readable
from supervisor.why import explain

MOMENTS = frozenset({
    "created_at", "assigned_at", "started_at", "finished_at", "not_before", "retry_at", "scheduled_for",
    "cancel_requested_at", "executor_stopped_at", "continuation_check_deadline_at",
})  # fmt: skip


def show(run_id: RunId, as_json: Json = False) -> int:
    """Show a run: every column, what it went through, and completions that came too late.

    Examples:

    - `tenure run show 7`
    - `tenure run show 7 --json | jq '.history[] | .to_state'`
    """
    row = _found(session.run(lambda store: store.row("show_run", run_id)), run_id)
    run = {
        **readable(row["run"]),
        "job": row["job"],
        "history": readable(row["history"]),
        "late_finishes": readable(row["late_finishes"]),
    }
    if as_json:
        output.print_json(run)
    else:
        _print_run(run, row["now"])
    return 0


def why_(run_id: RunId, as_json: Json = False) -> int:
    """Say the one reason why a run is not running: until when, on what evidence, and what to do next.

    Examples:

    - `tenure run why 7`
    - `tenure run why 7 --json | jq -r .reason`
    """
    settings = load_settings()
    found = session.run(lambda store: explain(store, run_id, settings.timings), settings)
    if as_json:
        output.print_json(found.answer())
        return 0
    reason = found.reason
    output.say(f"run {run_id} ", output.state(found.state, found.continuation_state), f": {reason.sentence}")
    output.print_facts(
        [
            ("reason", reason.code),
            (reason.until_when, _evidence(reason.until, found.now)),
            *((name, _evidence(value, found.now)) for name, value in reason.evidence.items()),
            ("what to do", reason.next),
        ]
    )
    return 0


def _found(row: Record | None, run_id: int) -> Record:
    if row is None:
        raise NotFound(kind="run", name=run_id)
    return row


def _print_run(run: dict[str, Any], now: datetime) -> None:
    output.print_facts(
        (name, f"{value} ({output.age(now, value)})" if name in MOMENTS and value else _plain(value))
        for name, value in run.items()
        if name not in {"history", "late_finishes"}
    )
    output.say("")
    output.print_table(
        ["VERSION", "MOVE", "ATTEMPT", "AT", "WORKER", "EPOCH", "REASON"],
        (
            [
                step["version"],
                f"{step['from_state'] or ''} -> {step['to_state']}"
                + (" CONFIRMING" if step["continuation_state"] == "CONFIRMING" else ""),
                step["attempt"],
                step["at"],
                step["worker_id"],
                step["leader_epoch"],
                step["reason"],
            ]
            for step in run["history"]
        ),
        empty="no history",
    )
    for late in run["late_finishes"]:
        output.say(f"late: {late['worker_id']} wanted to end it as {late['state']} at {late['at']}")


def _plain(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _evidence(value: Any, now: datetime) -> str | None:
    if isinstance(value, datetime):
        return f"{value.isoformat()} ({output.age(now, value)})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_evidence(fact, now)}" for name, fact in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return None if value is None else str(value)
