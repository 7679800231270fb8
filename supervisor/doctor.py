"""Is everything as the promises need it? A list of small checks; each says what it found and what to do.

`fail` means that a promise is, or can be, broken: `tenure doctor` exits 1. `warn` means that it works, with a
weakness somebody should know of. Every check only reads. A server that is a standby, or has no schema yet,
ends the list early: the rest could not be asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from schemas.report import SchemaState
from supervisor.config import Timings
from supervisor.lease import Lease
from supervisor.lease_grants import grant_faults
from supervisor.store import Record, Store
from supervisor.stored_json import readable

Result = Literal["ok", "warn", "fail"]

OLDEST, NEWEST = 15, 18
# three pools of eight, four for leases, two for duties and two for upkeep; renewals, beats and LISTEN
CONNECTIONS_PER_REPLICA: Final = 35
CLOCK_SECONDS: Final = 30.0
NOTIFICATIONS_SHARE: Final = 0.5

# name, query, result when it finds something, what that means, what to do
INVARIANTS: Final[Sequence[tuple[str, str, Result, str, str]]] = (
    ("one live attempt a root", "find_double_live", "fail", "two live attempts of one root",
     "stop the replicas and look at these runs with `tenure run show`; then check the indexes of job_run"),
    ("history without gaps", "find_version_gaps", "fail", "runs with a gap in their history",
     "somebody wrote to the tables past the functions: find out who, `tenure run show` has the rest"),
    ("epochs only grow", "find_epoch_regressions", "fail", "epochs that did not grow",
     "this database was restored or written to by hand; stop all replicas before anything else"),
    ("running on a known worker", "find_workerless", "warn", "running on a worker without a row",
     "a leader orphans or times them out by itself; if they stay, look at the leader's log"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    result: Result
    found: str
    advice: str = ""


async def examine(
    control: Store,
    worker: Store | None,
    timings: Timings,
    schema: SchemaState,
    leases: Sequence[Lease] = (),
    task_types: Sequence[Mapping[str, Any]] = (),
) -> list[Finding]:
    """Every check that can be made here. `worker` is None where the replicas have one URL for both halves."""
    server = await control.row("read_server_facts")
    assert server is not None  # noqa: S101  one row, always
    findings = [
        judge_version(server),
        judge_durability(server),
        judge_clock(server, datetime.now(UTC)),
        judge_limits(server),
        judge_timings(timings),
    ]
    if server["standby"]:
        advice = "point TENURE_DATABASE_URL at the primary"
        return [*findings, Finding("primary", "fail", "this server is a standby", advice)]
    findings += [judge_schema(schema), *judge_packages(schema)]
    if schema.standing == "old":
        return findings
    if leases:
        faults = await grant_faults(control, leases)
        fine = "exactly what the lease contracts say"
        findings.append(_listed("lease rights", faults, fine, "run `tenure migrate`"))
    if task_types:
        findings += await _examine_arguments(control, task_types)
    findings += await _examine_roles(control, worker)
    findings += await _examine_fleet(control, server, timings)
    findings += await _examine_invariants(control, timings)
    return findings


async def _examine_arguments(control: Store, task_types: Sequence[Mapping[str, Any]]) -> list[Finding]:
    known = [readable(row["task_type"]) for row in await control.rows("list_task_types")]
    stale = [_title(one) for one in task_types if one not in known]
    fine = "the database has what the code declares"
    jobs = [row["name"] for row in await control.rows("list_jobs_with_callers_programs")]
    advice = (
        "their callers replaced argv, env or cwd, and are refused now: declare parameters with"
        " `tenure job set NAME --parameters`, and give the values as arguments"
    )
    return [
        _listed("task types", stale, fine, "run `tenure migrate`"),
        _listed("programs", jobs, "no caller chose one lately", advice, "warn"),
    ]


def _title(task_type: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (task_type["domain"], task_type["action"])))


async def _examine_roles(control: Store, worker: Store | None) -> list[Finding]:
    excess = [row["what"] for row in await control.rows("list_excess_rights")]
    guards = [row["what"] for row in await control.rows("list_missing_guards")]
    identity = await control.row("read_identity")
    logins = [await control.row("read_login")]
    if worker is not None:
        logins.append(await worker.row("read_login"))
    return [
        judge_logins([row for row in logins if row is not None]),
        _listed("rights", excess, "no runtime role can write past the functions", "run `tenure migrate`"),
        _listed("guards", guards, "triggers, indexes and tables are in place", "run `tenure migrate`"),
        judge_identity(identity),
    ]


async def _examine_fleet(control: Store, server: Record, timings: Timings) -> list[Finding]:
    replicas = await control.rows("list_replicas", False)
    heard = [row for row in replicas if row["heartbeat_age_seconds"] < timings.stop_bound]
    leader = await control.row("show_leader")
    return [
        judge_leader(leader, len(heard), timings),
        judge_stop_bounds(heard, timings),
        judge_connections(server, len(heard)),
        judge_notifications(server),
    ]


async def _examine_invariants(control: Store, timings: Timings) -> list[Finding]:
    findings = []
    for name, query, result, meaning, advice in INVARIANTS:
        ids = [row["id"] for row in await control.rows(query)]
        findings.append(_broken(name, ids, result, meaning, advice))
    bound = timings.stop_bound + timings.confirm_after
    ids = [row["id"] for row in await control.rows("find_unexpired", bound)]
    advice = "the leader should have ended them: look at `tenure leader show` and its log"
    findings.append(_broken("confirmations end", ids, "fail", "CONFIRMING long after the deadline", advice))
    findings.append(judge_partitions(await control.row("read_partitions")))
    return findings


def judge_version(server: Any) -> Finding:
    major = server["version_num"] // 10000
    if major < OLDEST:
        return Finding("version", "fail", f"PostgreSQL {server['version']}", f"upgrade to {OLDEST} or newer")
    if major > NEWEST:
        advice = f"this release was tested with {OLDEST} to {NEWEST}"
        return Finding("version", "warn", f"PostgreSQL {server['version']}", advice)
    return Finding("version", "ok", f"PostgreSQL {server['version']}")


def judge_durability(server: Any) -> Finding:
    names = ("fsync", "synchronous_commit", "full_page_writes")
    off = [name for name in names if server[name] == "off"]
    found = ", ".join(f"{name}={server[name]}" for name in names)
    if off:
        advice = f"set {' and '.join(off)} on: a commit that is lost could hand out an epoch twice"
        return Finding("durability", "fail", found, advice)
    return Finding("durability", "ok", found)


def judge_clock(server: Any, host: datetime) -> Finding:
    """Nothing is decided by a host's wall clock; people compare logs by it."""
    seconds = (host - server["now"]).total_seconds()
    found = f"this host is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the database"
    if abs(seconds) > CLOCK_SECONDS:
        return Finding("clock", "warn", found, "set the clocks by NTP; only people are confused by it")
    return Finding("clock", "ok", found)


def judge_limits(server: Any) -> Finding:
    names = {
        "statement_timeout": server["statement_timeout"],
        "lock_timeout": server["lock_timeout"],
        "idle_in_transaction_session_timeout": server["idle_timeout"],
    }
    found = ", ".join(f"{name}={value}" for name, value in names.items())
    if endless := [name for name, value in names.items() if value == "0"]:
        advice = f"no {', '.join(endless)} for this login: `tenure migrate` sets them for logins of its own"
        return Finding("session limits", "warn", found, advice)
    return Finding("session limits", "ok", found)


def judge_timings(timings: Timings) -> Finding:
    values = (
        f"L={timings.leader_lease:g} R={timings.renew_deadline:g} retry={timings.renew_retry:g}"
        f" H={timings.heartbeat:g} C={timings.confirm_after:g} S={timings.self_stop:g} k={timings.kill:g}"
        f" D={timings.stop_bound:g}"
    )
    if complaints := timings.complaints():
        return Finding("timings", "fail", f"{values}: {'; '.join(complaints)}", "correct the TENURE_ timings")
    return Finding("timings", "ok", values)


def judge_schema(schema: SchemaState) -> Finding:
    found = f"schema {schema.current}, this code is for {schema.expected}"
    if schema.standing == "old":
        return Finding("schema", "fail", found, "run `tenure migrate`")
    if schema.standing == "new":
        return Finding("schema", "warn", found, "a newer version migrated it: finish rolling that out")
    if not schema.functions_equal:
        advice = "run `tenure migrate`, unless another version is being rolled out"
        return Finding("schema", "warn", f"{found}; its functions are of another version", advice)
    return Finding("schema", "ok", found)


def judge_packages(schema: SchemaState) -> list[Finding]:
    """One finding for each installed package with migrations of its own."""
    findings = []
    for one in schema.packages:
        found = f"migration {one.current}, the installed package is for {one.expected}"
        if one.current < one.expected:
            findings.append(Finding(f"package {one.namespace}", "fail", found, "run `tenure migrate`"))
        elif one.current > one.expected:
            advice = "a newer version of the package migrated it: finish rolling that out"
            findings.append(Finding(f"package {one.namespace}", "warn", found, advice))
        else:
            findings.append(Finding(f"package {one.namespace}", "ok", found))
    return findings


def judge_logins(logins: Sequence[Any]) -> Finding:
    control, worker = logins[0], logins[-1]
    found = f"control {control['name']}, worker {worker['name']}"
    if not control["controls"] or not worker["works"]:
        advice = "run `tenure migrate` with TENURE_DATABASE_URL and TENURE_WORKER_DATABASE_URL set as here"
        return Finding("logins", "fail", f"{found}: not both may call their functions", advice)
    if control["superuser"] or worker["superuser"]:
        advice = "give the replicas logins of their own; a superuser passes every guard by"
        return Finding("logins", "warn", f"{found}: a superuser", advice)
    if control["rewrites"] or worker["rewrites"]:
        advice = "give the replicas logins that own nothing; this one can rewrite job_run past the functions"
        return Finding("logins", "warn", f"{found}: may UPDATE job_run", advice)
    if control["name"] == worker["name"]:
        advice = "set TENURE_WORKER_DATABASE_URL to a second login, so that a worker cannot act as a leader"
        return Finding("logins", "warn", f"{found}: one for both", advice)
    return Finding("logins", "ok", found)


def judge_identity(identity: Any) -> Finding:
    found = f"system identifier {identity['system_identifier']}, timeline {identity['timeline']}"
    if not identity["shown"] or identity["system_identifier"] == 0:
        advice = (
            "failover detection is off: grant EXECUTE on pg_control_system, pg_current_wal_lsn and"
            " pg_walfile_name to tenure_owner"
        )
        return Finding("identity", "warn", f"{found}: the server hides them", advice)
    return Finding("identity", "ok", found)


def judge_leader(leader: Any, replicas: int, timings: Timings) -> Finding:
    if leader["live"]:
        return Finding("leader", "ok", f"{leader['worker_id']}, epoch {leader['epoch']}")
    if replicas == 0:
        return Finding(
            "leader", "warn", "nobody leads: no replica was heard lately", "start one: `tenure up`"
        )
    expired = leader["expires_at"]
    if expired is not None and (leader["now"] - expired).total_seconds() < timings.leader_lease:
        return Finding("leader", "warn", "nobody leads at the moment", "ask again in a few seconds")
    advice = (
        "start one without --no-lead, or look at the log of one that runs: it names a server that refuses"
        " leadership"
    )
    return Finding("leader", "fail", f"nobody leads, though {replicas} replicas are heard", advice)


def judge_stop_bounds(replicas: Sequence[Any], timings: Timings) -> Finding:
    bounds = {row["stop_bound_seconds"] for row in replicas}
    found = f"{len(replicas)} replicas heard"
    if bounds - {timings.stop_bound}:
        values = ", ".join(f"{bound:g}" for bound in sorted(bounds))
        advice = "give every replica and this shell the same timings; until then the longest bound counts"
        return Finding(
            "stop bounds", "warn", f"{found} with D={values}, here D={timings.stop_bound:g}", advice
        )
    return Finding("stop bounds", "ok", f"{found}, D={timings.stop_bound:g}")


def judge_connections(server: Any, replicas: int) -> Finding:
    needed = max(1, replicas) * CONNECTIONS_PER_REPLICA
    found = f"{server['connections']} allowed, {server['connected']} in use, replicas may take {needed}"
    if needed > server["connections"]:
        return Finding("connections", "warn", found, "raise max_connections, or put a pooler in between")
    return Finding("connections", "ok", found)


def judge_notifications(server: Any) -> Finding:
    """Once the queue is full every NOTIFY fails, and with it every call that makes or ends a run."""
    found = f"{server['notifications']:.0%} of the server's queue of notifications in use"
    if server["notifications"] > NOTIFICATIONS_SHARE:
        advice = (
            "a session listens in a transaction that it holds open, and keeps the queue from being emptied:"
            " end it; docs/security.md says how to find it"
        )
        return Finding("notifications", "warn", found, advice)
    return Finding("notifications", "ok", found)


def judge_partitions(partitions: Any) -> Finding:
    if partitions["default_bytes"]:
        advice = "no leader made the months in time; those rows stay there, the next months are made again"
        return Finding("history partitions", "warn", "rows are in the default partition", advice)
    if not partitions["next_month"]:
        advice = "run `tenure migrate`, or let a leader run for a day"
        return Finding("history partitions", "warn", "next month has no partition yet", advice)
    return Finding("history partitions", "ok", "this month and the next are prepared")


def _listed(name: str, faults: Sequence[str], fine: str, advice: str, result: Result = "fail") -> Finding:
    return Finding(name, result, "; ".join(faults), advice) if faults else Finding(name, "ok", fine)


def _broken(name: str, ids: Sequence[int], result: Result, meaning: str, advice: str) -> Finding:
    if not ids:
        return Finding(name, "ok", "holds")
    return Finding(name, result, f"{meaning}: {', '.join(map(str, ids))}", advice)
