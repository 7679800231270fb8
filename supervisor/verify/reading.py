"""From a recorded directory to a history. A file that is missing, or was cut, is a part that is missing."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from supervisor.errors import BadInput
from supervisor.verify import rows
from supervisor.verify.calling import before, calls_of, contacts_of
from supervisor.verify.history import History, Limits, Scenario, went_back
from supervisor.verify.records import Death, Effect, Fault, Offer, Schedule, Skip, Thing

T = TypeVar("T")
Timed = TypeVar("Timed", Effect, Offer)
Clock = Callable[[Any], float]

# faults that set a clock; where it is the database's, its timestamps prove nothing
CLOCK_FAULTS: Final = ("clock", "jump", "back", "faketime")
# the clock of another host may be behind
FAILOVERS: Final = ("promote", "failover")
SERVERS: Final = ("pg", "postgres", "database")


def read(directory: Path) -> History:
    if not directory.is_dir():
        raise BadInput(what=f"{directory} is not a directory with a recorded history")
    doubts: list[str] = []
    clock = _clock(directory, doubts)
    database = _database(directory / "database", clock)
    scenario = _scenario(directory)
    faults = _optional(_lines(directory / "faults.jsonl"), _fault)
    calls = calls_of(sorted(directory.glob("calls-*.jsonl")), _lines)
    back = went_back(database.get("roots") or (), database.get("tenures") or ())
    set_by_hand = any(_sets_clock(one) for one in faults or ())
    moved = any(word in one.fault.lower() for one in faults or () for word in FAILOVERS)
    # the replicas go on while the database is read: what came after that is not in it
    until = float("inf") if set_by_hand else _last_sign(database)
    calls = None if calls is None else before(calls, until)
    limits = Limits(
        stop_bound=scenario.timings.get("D") if scenario else None,
        clock_steps=set_by_hand or moved,
        # the beats are timed by another clock than the database's
        contacts={} if set_by_hand else contacts_of(calls or ()),
    )
    lost = directory / "database-lost"
    history = History(
        scenario=scenario,
        limits=limits,
        slack=float("inf") if set_by_hand else back if moved else 0.0,
        schedules=_schedules(directory),
        calls=calls,
        effects=_until(_optional(_lines(directory / "effects.jsonl"), _effect), until),
        offers=_until(_optional(_lines(directory / "sink.jsonl"), _offer), until),
        faults=faults,
        deaths=_optional(_lines(directory / "deaths.jsonl"), _death),
        things=_optional(_lines(directory / "objects.jsonl"), _thing),
        lost=History(**_database(lost, clock)) if lost.is_dir() else None,
        doubts=doubts,
        **database,
    )
    history.figures["clock_went_back"] = back
    return history


def _last_sign(database: Mapping[str, Any]) -> float:
    """The newest time in the tables: they were read then or later."""
    roots, tenures = database.get("roots"), database.get("tenures")
    if roots is None or tenures is None:
        return float("inf")
    signs = [one.at for one in tenures]
    signs += [worker.heartbeat_at for root in roots[:1] for worker in root.workers.values()]
    signs += [moves[-1].at for root in roots for moves in root.moves.values()]
    return max(signs, default=float("inf"))


def _until(found: list[Timed] | None, until: float) -> list[Timed] | None:
    return None if found is None else [one for one in found if one.t <= until]


def _sets_clock(fault: Fault) -> bool:
    name = fault.fault.lower()
    return any(word in name for word in CLOCK_FAULTS) and fault.target.startswith(SERVERS)


def _clock(directory: Path, doubts: list[str]) -> Clock:
    """Turns the database's timestamps into the seconds of the host."""
    path = directory / "clock.json"
    if not path.exists():
        doubts.append("clock.json is missing: the database's times cannot be compared with the others")
        return rows.wall
    both = json.loads(path.read_text())
    ahead = float(both["wall"]) - float(both["boottime"])
    return lambda value: rows.wall(value) - ahead


def _database(directory: Path, clock: Clock) -> dict[str, Any]:
    tables = {
        name: _lines(directory / f"{name}.jsonl") for name in ("tenure_log", "job_run", "job_run_history")
    }
    found: dict[str, Any] = {}
    if tables["tenure_log"] is not None:
        tenures = [rows.tenure_of(row, clock) for row in tables["tenure_log"]]
        found["tenures"] = sorted(tenures, key=lambda one: one.id)
    if tables["job_run"] is not None and tables["job_run_history"] is not None:
        workers = [rows.worker_of(row, clock) for row in _lines(directory / "worker.jsonl") or ()]
        runs = [rows.run_of(row, clock) for row in tables["job_run"]]
        moves = (rows.move_of(row, clock) for row in tables["job_run_history"])
        found["roots"] = rows.roots_of(runs, moves, workers)
    late = _lines(directory / "late_finish.jsonl")
    if late is not None:
        found["lates"] = [rows.late_of(row, clock) for row in late]
    term = list(_lines(directory / "leader_epoch.jsonl") or ())
    if term:
        found["term"] = rows.term_of(term[0])
    return found


def _scenario(directory: Path) -> Scenario | None:
    path = directory / "scenario.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return Scenario(
        name=found.get("name", ""),
        timings=found.get("timings") or {},
        healed_at=found.get("healed_at"),
        ended_at=found.get("ended_at"),
        bounds=found.get("bounds") or {},
        async_failover=bool(found.get("async_failover")),
        expects=found.get("expects"),
        without=frozenset(PARTS.get(name, name) for name in found.get("without") or ()) | {"things"},
    )


# what a recorder calls a part, where it is another word
PARTS: Final = {"sink": "offers", "objects": "things", "database": "roots"}


def _schedules(directory: Path) -> list[Schedule] | None:
    """By the wall clock: an instant of a schedule is one."""
    definitions = _lines(directory / "database/job_definition.jsonl")
    runs = _lines(directory / "database/job_run.jsonl")
    if definitions is None or runs is None:
        return None
    fired: dict[int, list[float]] = {}
    for row in runs:
        if row.get("scheduled_for") is not None:
            fired.setdefault(row["job_definition_id"], []).append(rows.wall(row["scheduled_for"]))
    skipped = _lines(directory / "database/skipped_fire.jsonl")
    skips: dict[int, list[Skip]] = {}
    for row in skipped or ():
        first, last = rows.wall(row["first_instant"]), rows.wall(row["last_instant"])
        skips.setdefault(row["job_definition_id"], []).append(Skip(first, last, row["instants"]))
    return [
        Schedule(
            job=row["name"],
            cron=row["cron"],
            timezone=row["timezone"],
            missed=row["missed"],
            since=rows.wall(row["updated_at"]) + 1,
            until=rows.wall(row["fired_until"]),
            fired=tuple(fired.get(row["id"], ())),
            skips=None if skipped is None else tuple(skips.get(row["id"], ())),
        )
        for row in definitions
        if row.get("cron") and not row.get("schedule_error")
    ]


def _lines(path: Path) -> Iterator[dict[str, Any]] | None:
    return _stream(path) if path.exists() else None


def _stream(path: Path) -> Iterator[dict[str, Any]]:
    """A last line that was cut by a kill is left out; a broken one in the middle is an error."""
    with path.open() as file:
        for number, text in enumerate(file, 1):
            try:
                yield json.loads(text)
            except json.JSONDecodeError as error:
                if text.endswith("\n"):
                    raise BadInput(what=f"{path}:{number} is not JSON: {error}") from None


def _optional(found: Iterable[dict[str, Any]] | None, make: Callable[[dict[str, Any]], T]) -> list[T] | None:
    return None if found is None else [make(row) for row in found]


def _effect(row: dict[str, Any]) -> Effect:
    return Effect(
        row["t"], row["what"], row["run"], row["root"], row["attempt"], row.get("epoch"), row["claim"],
        row["pid"], row.get("host", ""),
    )  # fmt: skip


def _offer(row: dict[str, Any]) -> Offer:
    return Offer(
        row["seq"], row["t"], row["root"], row["run"], row["attempt"], row["epoch"], row["claim"],
        row["accepted"], row.get("reason"),
    )  # fmt: skip


def _fault(row: dict[str, Any]) -> Fault:
    return Fault(row["t"], row["fault"], str(row.get("target", "")), row["phase"])


def _death(row: dict[str, Any]) -> Death:
    return Death(row["t"], row.get("host", ""), row["pid"], row.get("code"))


def _thing(row: dict[str, Any]) -> Thing:
    return Thing(
        row["name"], row.get("sha256", ""), tuple(row.get("named_by") or ()), bool(row.get("temporary")),
        row.get("age", 0.0),
    )  # fmt: skip
