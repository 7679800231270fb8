"""Functions of leaders and workers with guessed epochs and claims, on existing objects, as each SQL role."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any, Final
from uuid import uuid4

import asyncpg
import pytest

from supervisor.lease_sql import render
from supervisor.wiring import leases
from tests.integration.existing import Existing, existing_objects
from tests.support.lending import Shared
from tests.support.module_place import module_place
from tests.support.sessions import connected

ROLES: Final = ("control", "worker", "maintenance", "console", "client")
OURS: Final = """
    SELECT p.oid::regprocedure::text AS name, p.proname AS short, n.nspname AS schema,
           ARRAY(SELECT r.name FROM unnest($1::text[]) AS r (name)
                  WHERE has_function_privilege('tenure_' || r.name, p.oid, 'EXECUTE')) AS roles,
           coalesce(p.proargnames[:p.pronargs], '{}') AS names,
           ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)
                  ORDER BY n) AS types
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname IN ('supervisor', 'dedup', 'scm', 'identity', 'logbook', 'analysis', 'governance',
                         'media', 'schedule_ingest')
       AND p.prorettype <> 'trigger'::regtype ORDER BY 1"""
LATE: Final = '"supervisor"."late_finish"'
"""Evidence of what was refused."""

WITHOUT_CLAIM: Final = {
    "supervisor.server_identity": "reads",
    "schedule_ingest.lease_timeout": "reads",
    "logbook.add_item": "the ledger takes what a worker adds",
    "logbook.add_event": "the ledger takes what a worker adds",
    "logbook.attach": "the ledger takes what a worker adds",
    "logbook.claim_outbox": "gives out a claim",
}
BESIDES: Final = {"p_worker", "p_states", "p_epochs"}
"""What a call says besides the thing that it is about."""

QUIET: Final = {
    "dedup.cancel_for_run", "dedup.read_cleanup", "logbook.finish_outbox", "schedule_ingest.give_back",
    "scm.cancel_for_run", "supervisor.append_log", "supervisor.assigned", "supervisor.confirm_self",
    "supervisor.finish", "supervisor.release", "supervisor.start",
}  # fmt: skip
"""They say of each claim whether it was theirs, and refuse no call."""

REFUSED: Final = {"TN016", "TN021", "23502"}
"""Another's name, another's claim, and no secret at all."""

ANSWERS_NOTHING: Final = {"renew", "resign"}
"""They compare the epoch with the lease, and answer with no row and with false."""


@pytest.fixture(scope="module")
async def module_objects(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Existing]:
    with module_place(tmp_path_factory) as place:
        async with existing_objects(module_database, place) as made:
            yield made


@pytest.fixture
async def there(module_objects: Existing) -> Existing:
    await module_objects.renew()
    return module_objects


async def functions(there: Existing) -> Sequence[asyncpg.Record]:
    found: Sequence[asyncpg.Record] = await there.shared.connection.fetch(OURS, list(ROLES))
    return found


def values(there: Existing, version: int) -> dict[str, Any]:
    """An existing thing for a parameter of each type."""
    singles: dict[str, Any] = {
        "bigint": there.ids.running, "integer": version, "text": "w1", "double precision": 30.0,
        "timestamp with time zone": datetime.now(UTC), "uuid": uuid4(), "jsonb": "{}", "boolean": True,
        "bytea": b"x",
    }  # fmt: skip
    return singles | {f"{kind}[]": [value] for kind, value in singles.items()}


async def attempt(
    connection: "asyncpg.Connection[asyncpg.Record]", name: str, arguments: Sequence[Any]
) -> tuple[str | None, list[Any]]:
    """The SQLSTATE of a call, or None and its rows."""
    places = ", ".join(f"${number}" for number in range(1, len(arguments) + 1))
    try:
        rows = await connection.fetch(f"SELECT * FROM {name.partition('(')[0]}({places})", *arguments)
    except asyncpg.PostgresError as error:
        return error.sqlstate, []
    return None, [value for row in rows for value in row.values()]


async def test_a_guessed_epoch_moves_nothing(there: Existing) -> None:
    """Each function of a leader, on existing runs: TN001 for who may lead, else it is not theirs to call."""
    epoch = there.scene.epoch
    version = await there.value("SELECT version FROM supervisor.job_run WHERE id = $1", there.ids.running)
    fenced = [one for one in await functions(there) if "p_epoch" in one["names"]]
    assert len(fenced) > 25
    before, known = await there.digest(), values(there, version)
    for role in ROLES:
        async with connected(getattr(there.urls, role)) as connection:
            for one in fenced:
                may = role in one["roles"]
                assert may <= (role == "control"), one["name"]
                for guess in (epoch + 1, epoch - 1, 0, -1, 2**62, None):
                    arguments = [
                        guess if name == "p_epoch" else known[kind]
                        for name, kind in zip(one["names"], one["types"], strict=True)
                    ]
                    code, answer = await attempt(connection, one["name"], arguments)
                    if may and one["short"] in ANSWERS_NOTHING:
                        assert (code, any(answer)) == (None, False), (one["name"], guess)
                    else:
                        assert code == ("TN001" if may else "42501"), (role, one["name"], guess)
    assert await there.digest() == before


async def test_the_right_epoch_is_what_a_guess_lacks(there: Existing) -> None:
    """The same calls pass the fence under the epoch that leads; what they did is undone."""
    version = await there.value("SELECT version FROM supervisor.job_run WHERE id = $1", there.ids.running)
    known = values(there, version) | {"p_epoch": there.scene.epoch}
    async with connected(there.urls.control) as connection:
        for one in await functions(there):
            if "p_epoch" not in one["names"]:
                continue
            arguments = [
                known[name if name == "p_epoch" else kind]
                for name, kind in zip(one["names"], one["types"], strict=True)
            ]
            undone = connection.transaction()
            await undone.start()
            code, _ = await attempt(connection, one["name"], arguments)
            await undone.rollback()
            assert code != "TN001", one["name"]


async def claim_all(there: Existing) -> None:
    """Something of every kind runs under a claim of w1, so far as there is something to claim."""
    for sql in (
        "SELECT dedup.request_thumbnail('test', $1, 'jpeg', 256)",
        "SELECT dedup.schedule_cleanup('test', 'file:' || $1::bigint, 0)",
        "SELECT dedup.request_checkpoint('test', 'passive', 'test', NULL) FROM (SELECT $1::bigint) x",
    ):
        await there.value(sql, there.ids.file)
    await there.value("SELECT created FROM scm.request_sync('test', 'code', 'svn', NULL, NULL)")
    async with connected(there.urls.worker) as worker:
        held = [
            lease.table
            for lease in leases()
            if any(row[1] for row in await worker.fetch(render(lease).claim.sql, "w1", 1, "none"))
        ]
    assert {"scm.sync_runs", "dedup.thumbnails", "schedule_ingest.capture_session"} <= set(held)


async def things(there: Existing) -> Mapping[tuple[str, str], Sequence[Any]]:
    """What a worker's functions name besides their claim: existing things under a claim, by name and type."""
    connection = there.shared.connection

    async def all_of(sql: str) -> list[Any]:
        return [row[0] for row in await connection.fetch(sql)]

    runs = [there.ids.running, there.ids.pending, there.ids.failed]
    return {
        ("p_worker", "text"): ["w1"],
        ("p_states", "text[]"): [["SUCCEEDED"]],
        ("p_epochs", "bigint[]"): [[there.scene.epoch]],
        ("p_run", "text"): await all_of("SELECT run_id FROM scm.sync_runs WHERE status = 'running'"),
        ("p_run_id", "bigint"): runs,
        ("p_id", "bigint"): runs,
        ("p_job", "uuid"): await all_of("SELECT id FROM dedup.jobs WHERE status = 'running'"),
        ("p_job", "bigint"): await all_of("SELECT id FROM media.rendition_jobs"),
        ("p_session", "uuid"): await all_of(
            "SELECT id FROM schedule_ingest.capture_session WHERE state = 'processing'"
        ),
        ("p_session", "bigint"): await all_of("SELECT id FROM dedup.scan_sessions"),
        ("p_cleanup", "bigint"): await all_of("SELECT id FROM dedup.thumbnail_cleanup_jobs"),
        ("p_file", "bigint"): [there.ids.file],
    }


async def test_a_guessed_claim_moves_nothing(there: Existing) -> None:
    """Each function that needs a claim or a worker's secret, on what really runs; refusals leave evidence."""
    await claim_all(there)
    version = await there.value("SELECT version FROM supervisor.job_run WHERE id = $1", there.ids.running)
    known, named = values(there, version), await things(there)
    assert all(named.values()), named
    before, tried = await there.digest(), 0
    async with connected(there.urls.worker) as worker:
        for one in await functions(there):
            if "worker" not in one["roles"] or f"{one['schema']}.{one['short']}" in WITHOUT_CLAIM:
                continue
            pairs = list(zip(one["names"], one["types"], strict=True))
            subject = next((pair for pair in pairs if pair in named and pair[0] not in BESIDES), None)
            for thing, guess in product(named[subject] if subject else [None], (uuid4(), None)):
                guessed = known | {"uuid": guess, "uuid[]": [guess]}
                arguments = [
                    thing if pair == subject else named[pair][0] if pair in named else guessed[pair[1]]
                    for pair in pairs
                ]
                code, answer = await attempt(worker, one["name"], arguments)
                quiet = f"{one['schema']}.{one['short']}" in QUIET
                assert code in ({None} if quiet else REFUSED), (one["name"], guess, code)
                assert not {"RECORDED", "ALREADY"} & set(map(str, answer)), one["name"]
                tried += 1
            after = await there.digest()
            assert after | {LATE: ""} == before | {LATE: ""}, one["name"]
    assert tried > 100


OLD_CALLS: Final = (
    "SELECT dedup.request_thumbnail(%(file)s, 'jpeg', 256)",
    "SELECT logbook.attach(%(item)s, 'log', 'attachments/9/9.log', repeat('a', 64), 1, NULL)",
    """SELECT schedule_ingest.submit(gen_random_uuid(), 7, '[{"r2_key": "capture/x"}]')""",
)


@pytest.mark.parametrize("call", OLD_CALLS)
async def test_a_caller_that_names_nobody_is_known_by_its_login(there: Existing, call: str) -> None:
    """Replicas of the release before, and applications, call without an actor."""
    last = await there.last()
    async with connected(there.urls.control) as control:
        await control.execute(call % {"file": there.ids.file, "item": there.ids.item})
        login = await control.fetchval("SELECT session_user")
    assert await there.who(last) == [f"login:{login}"]


async def test_the_audit_has_the_login_beside_the_actor_that_it_gives(there: Existing) -> None:
    """A login in tenure_control could act under anybody's name."""
    async with connected(there.urls.control) as control:
        await control.execute("SELECT supervisor.pause_domain('token:anna', 'media', true)")
        login = await control.fetchval("SELECT session_user")
    row = await there.shared.connection.fetchrow("SELECT actor, login FROM supervisor.audit ORDER BY id DESC")
    assert row is not None
    assert tuple(row) == ("token:anna", login)


CALLS_WITH_CLAIMS: Final = {
    "start": """SELECT * FROM supervisor.start($1, $2, 1, ARRAY[$3::bigint], ARRAY[$4::integer],
        ARRAY[$2::uuid])""",
    "finish": """SELECT * FROM supervisor.finish($1, ARRAY[$3::bigint], ARRAY[$2::uuid], ARRAY[$4::bigint],
        ARRAY['FAILED'], ARRAY[NULL::jsonb], ARRAY['x'], ARRAY['x'], ARRAY[NULL::float8])""",
    "release": "SELECT supervisor.release($1, ARRAY[$3::bigint], ARRAY[$2::uuid]), $4::integer",
}


@pytest.mark.parametrize("call", CALLS_WITH_CLAIMS)
async def test_a_guessed_claim_locks_nothing_and_is_told_nothing(there: Existing, call: str) -> None:
    """In a transaction that stays open, on runs of others: who holds them could not finish them."""
    for run in (there.ids.running, there.ids.pending):
        version = await there.value("SELECT version FROM supervisor.job_run WHERE id = $1", run)
        payload = await there.value("SELECT payload::text FROM supervisor.job_run WHERE id = $1", run)
        async with connected(there.urls.worker) as worker, connected(there.urls.admin) as other:
            secret = uuid4()
            await worker.execute(
                "SELECT FROM supervisor.beat('guesser', $1, 1, 0, '{}', '{nothing}', 1, 30, false)", secret
            )
            undone = worker.transaction()
            await undone.start()
            answer = await worker.fetch(CALLS_WITH_CLAIMS[call], "guesser", secret, run, version)
            assert payload not in [str(value) for row in answer for value in row.values()]
            if call != "start":  # that one waits for an assignment that is under way
                await other.execute("SELECT FROM supervisor.job_run WHERE id = $1 FOR UPDATE NOWAIT", run)
            await undone.rollback()
            await worker.execute("SELECT FROM supervisor.leave('guesser', $1)", secret)
            await other.execute("DELETE FROM supervisor.worker WHERE worker_id = 'guesser'")
