"""Libraries and jobs as people, runs and the leader ask for them; the mutex; claims that race."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import DedupWorld, refused
from tests.support.slowness import patient

OPEN = "SELECT count(*) FROM dedup.jobs WHERE kind IN ('scan', 'hash') AND status IN ('pending', 'running')"


async def at_once(calls: list[asyncio.Future[object]]) -> tuple[list[object], list[object]]:
    """What came back, and the SQLSTATEs of what was refused."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    done = [answer for answer in answers if not isinstance(answer, BaseException)]
    refusals: list[object] = [
        a.sqlstate if isinstance(a, asyncpg.PostgresError) else repr(a) for a in answers if a not in done
    ]
    return done, refusals


async def test_one_of_many_claims_wins(world: DedupWorld) -> None:
    """R000-17, R000-18: with status, owner, heartbeat and expiry of one statement."""
    job = (await world.request("scan"))["id"]
    hands = [await world.hand("worker") for _ in range(8)]
    won = await asyncio.gather(
        *(world.claim(leases.SCAN, owner=f"w{n}", rows=5, hand=hand) for n, hand in enumerate(hands))
    )
    assert [claim.id for claims in won for claim in claims] == [job]
    row = await world.job_row(job)
    assert row["status"] == "running"
    assert won[int(row["worker_id"][1:])]
    assert row["worker_heartbeat_at"] == row["started_at"] == row["updated_at"]
    assert row["lease_expires_at"] > row["worker_heartbeat_at"]


async def test_a_job_that_is_just_being_claimed_is_passed_over(world: DedupWorld) -> None:
    """R000-17, R000-18: nobody waits for it, and nobody takes it a second time."""
    job = (await world.request("scan"))["id"]
    other = await world.hand("worker")
    await world.worker.begin()
    [claimed] = await world.claim(leases.SCAN)
    assert await asyncio.wait_for(world.claim(leases.SCAN, owner="w2", hand=other), patient(10)) == []
    await world.worker.commit()
    assert claimed.id == job
    assert (await world.job_row(job))["worker_id"] == "w1"


async def test_a_finish_ends_the_lease_and_keeps_who_it_was(world: DedupWorld) -> None:
    """R000-21, R000-22 (C-12)"""
    job = await world.claimed(leases.SCAN, "scan")
    assert await world.finish(leases.SCAN, job, owner="w2") == "SUPERSEDED"
    assert await world.finish(leases.SCAN, job, progress=1.0) == "RECORDED"
    row = await world.job_row(job.id)
    assert (row["status"], row["lease_expires_at"], row["worker_id"]) == ("completed", None, "w1")
    assert row["finished_at"] is not None


@pytest.mark.parametrize("kind", ["scan", "hash"])
@pytest.mark.parametrize("by", ["control", "worker"])
async def test_a_stale_job_becomes_retryable(world: DedupWorld, kind: str, by: str) -> None:
    """R000-23, R000-24, R000-25: unbound, with the same error whoever comes by."""
    lease = leases.SCAN if kind == "scan" else leases.HASH
    job = await world.claimed(lease, kind)
    await world.expire("jobs")
    if by == "control":
        assert await world.recover(lease) == 1
    else:
        assert await world.claim(lease, owner="w2") == []
    row = await world.job_row(job.id)
    assert row["status"] == "retryable"
    assert [row[name] for name in ("worker_id", "worker_heartbeat_at", "lease_expires_at", "claim_id")] == [
        None
    ] * 4
    assert row["error_code"] == "LEASE_EXPIRED"
    assert row["error_message"] == lease.stale_message
    assert row["retry_count"] == 1
    assert row["retry_after"] is not None
    assert await world.finish(lease, job) == "SUPERSEDED"


@pytest.mark.parametrize("kind", ["delete", "thumbnail"])
async def test_recovery_touches_scans_and_hashes_only(world: DedupWorld, kind: str) -> None:
    """R000-26: by either way; a stale job of another kind stays as it is."""
    lease = leases.DELETE if kind == "delete" else leases.THUMBNAIL_JOB
    await world.admin.sql("INSERT INTO dedup.jobs (kind) VALUES ($1)", kind)
    [job] = await world.claim(lease)
    await world.expire("jobs")
    before = await world.job_row(job.id)
    for other in (leases.SCAN, leases.HASH):
        assert await world.recover(other) == 0
        assert await world.claim(other) == []
    assert await world.job_row(job.id) == before
    await world.recover(lease)
    after = await world.job_row(job.id)
    assert {name for name in after.keys() if after[name] != before[name]} <= {"claim_id"}  # noqa: SIM118


@pytest.mark.parametrize(
    ("first", "second"), [("scan", "hash"), ("hash", "scan"), ("scan", "scan"), ("hash", "hash")]
)
async def test_a_second_scan_or_hash_is_refused(world: DedupWorld, first: str, second: str) -> None:
    """R000-48, R000-50: while one waits and while it runs, and it is named."""
    job = (await world.request(first))["id"]
    assert str(job) in await refused("TN021", world.request(second))
    await world.claimed(leases.SCAN if first == "scan" else leases.HASH)
    assert str(job) in await refused("TN021", world.request(second))
    assert await world.admin.value(OPEN) == 1


async def test_the_mutex_holds_whatever_the_case(world: DedupWorld) -> None:
    """R000-48, R000-49: the predicate folds the case, so that a row of an older make counts."""
    await world.request("scan")
    await world.admin.sql("ALTER TABLE dedup.jobs DROP CONSTRAINT job_kind, DROP CONSTRAINT job_status")
    await refused(
        "23505", world.admin.sql("INSERT INTO dedup.jobs (kind, status) VALUES ('HASH', 'RUNNING')")
    )


async def test_other_kinds_and_ended_jobs_are_not_limited(world: DedupWorld) -> None:
    """R000-52, and C-09: a retryable one does not count."""
    scan = await world.claimed(leases.SCAN, "scan")
    for _ in range(3):
        await world.request("thumbnail")
        await world.admin.sql("INSERT INTO dedup.jobs (kind) VALUES ('delete')")
    await world.expire("jobs")
    assert await world.recover(leases.SCAN) == 1
    await world.request("hash")
    assert await world.admin.value(OPEN) == 1
    await refused("TN021", world.control.sql("SELECT * FROM dedup.reset_job('anna', $1)", scan.id))


async def test_of_jobs_asked_for_at_once_one_is_made(world: DedupWorld) -> None:
    """R000-51: the others are told of a conflict and of nothing else."""
    hands = [await world.hand("control") for _ in range(6)]
    calls = [world.request("scan" if n % 2 else "hash", hand=hand) for n, hand in enumerate(hands)]
    done, refusals = await at_once([asyncio.ensure_future(call) for call in calls])
    assert len(done) == 1
    assert refusals == ["TN021"] * 5
    assert await world.admin.value(OPEN) == 1


async def test_who_comes_while_another_has_not_committed_waits_for_him(world: DedupWorld) -> None:
    """R000-51: a job that was taken back does not count."""
    other = await world.hand("control")
    await world.control.begin()
    await world.request("scan")
    waiting = await world.waiting(other, world.request("hash", hand=other))
    await world.control.rollback()
    assert (await waiting)["kind"] == "hash"


async def test_a_job_names_a_library_that_is_there(world: DedupWorld) -> None:
    await refused("TN020", world.request("scan", "nowhere"))
    await refused("TN022", world.request("scan", None))
    await refused("TN022", world.request("delete", None))
    await refused(
        "TN022", world.control.sql("SELECT * FROM dedup.request_job('anna', NULL, 'photos', '{}', true)")
    )


@pytest.mark.parametrize(
    ("kind", "payload", "legal"),
    [
        ("hash", {"algorithm": "md5"}, False),
        ("hash", {"algorithm": "sha256", "mode": "duplicates"}, True),
        ("hash", {"mode": "similar"}, False),
        ("scan", {"allow_empty": "perhaps"}, False),
        ("thumbnail", {"format": "png"}, False),
        ("thumbnail", {"max_dimension": 4096}, False),
        ("thumbnail", {"max_dimension": 99.5}, False),
        ("thumbnail", {"max_dimension": "256"}, False),
        ("thumbnail", {"max_dimension": 2048, "format": None}, True),
    ],
)
async def test_a_payload_that_no_worker_could_follow_is_refused(
    world: DedupWorld, kind: str, payload: dict[str, Any], legal: bool
) -> None:
    if legal:
        await world.request(kind, **payload)
    else:
        await refused("TN022", world.request(kind, **payload))
        assert await world.admin.value("SELECT count(*) FROM dedup.jobs") == 0


async def test_one_library_is_not_inside_another(world: DedupWorld) -> None:
    for name, path in (("photos", "x"), ("y", "photos"), ("y", "photos/2024")):
        add = "SELECT * FROM dedup.add_library('anna', $1, $2)"
        await refused("TN021", world.control.sql(add, name, path))
    refusable: tuple[str | None, ...] = ("", "a/b", ".hidden", "x" * 64, None)
    for wrong in refusable:
        await refused("TN022", world.control.sql("SELECT * FROM dedup.add_library('anna', $1, 'z')", wrong))
    await world.control.sql("SELECT * FROM dedup.add_library('anna', 'y', 'photos2')")


async def test_a_library_with_open_jobs_stays(world: DedupWorld) -> None:
    """And one that is just being removed gets no job: the later of the two is refused, not broken."""
    await world.request("scan")
    remove = "SELECT dedup.remove_library('anna', 'photos')"
    await refused("TN021", world.control.sql(remove))
    await world.admin.sql("DELETE FROM dedup.jobs")
    await world.control.begin()
    await world.control.sql(remove)
    other = await world.hand("control")
    waiting = await world.waiting(other, world.request("scan", hand=other))
    await world.control.commit()
    await refused("TN020", waiting)


async def test_the_leader_returns_what_is_due(world: DedupWorld) -> None:
    """C-08: the oldest first, one at a time, and nothing before its time or under a lost tenure."""
    jobs = []
    for _ in range(2):
        job = await world.claimed(leases.SCAN, "scan")
        await world.expire("jobs")
        await world.recover(leases.SCAN)
        jobs.append(job.id)
    returned = "SELECT dedup.return_retryable($1)"
    assert await world.control.value(returned, world.epoch) == 0, "before its time"
    await world.admin.sql(
        "UPDATE dedup.jobs SET retry_after = now() - interval '1 minute' * CASE id WHEN $1 THEN 2 ELSE 1 END",
        jobs[1],
    )
    await refused("TN001", world.control.sql(returned, world.epoch + 1))
    assert await world.control.value(returned, world.epoch) == 1
    assert [(await world.job_row(job))["status"] for job in jobs] == ["retryable", "pending"]
    assert await world.control.value(returned, world.epoch) == 0, "another is active"
    assert (await world.job_row(jobs[1]))["retry_after"] is None


async def test_a_returned_deletion_does_not_wait_for_the_mutex(world: DedupWorld) -> None:
    await world.request("scan")
    await world.admin.sql(
        "INSERT INTO dedup.jobs (kind, status, retry_after) VALUES ('delete', 'retryable', now())"
    )
    assert await world.control.value("SELECT dedup.return_retryable($1)", world.epoch) == 1


async def test_what_was_tried_too_often_ends(world: DedupWorld) -> None:
    """R000-104: with what it failed of."""
    await world.admin.sql(
        "INSERT INTO dedup.jobs (kind, status, retry_after, retry_count, error_code) "
        "VALUES ('scan', 'retryable', now(), 11, 'LEASE_EXPIRED')"
    )
    assert await world.control.value("SELECT dedup.return_retryable($1)", world.epoch) == 0
    [row] = await world.admin.sql("SELECT status, error_code, error_message, finished_at FROM dedup.jobs")
    assert (row["status"], row["error_code"]) == ("failed", "RETRIES_EXHAUSTED")
    assert "LEASE_EXPIRED" in row["error_message"]
    assert row["finished_at"] is not None


async def test_retries_wait_longer_each_time(world: DedupWorld) -> None:
    waits = []
    await world.request("scan")
    for _ in range(4):
        [job] = await world.claim(leases.SCAN)
        await world.expire("jobs")
        await world.recover(leases.SCAN)
        row = await world.admin.one("SELECT retry_count, retry_after - updated_at AS wait FROM dedup.jobs")
        waits.append(round(row["wait"].total_seconds()))
        await world.control.sql("SELECT * FROM dedup.reset_job('anna', $1)", job.id)
    assert waits == [1, 2, 4, 8]


async def test_a_cancelled_job_is_nobodys(world: DedupWorld) -> None:
    job = await world.claimed(leases.HASH, "hash")
    cancel = "SELECT status FROM dedup.cancel_job('anna', $1)"
    assert await world.control.value(cancel, job.id) == "cancelled"
    assert await world.finish(leases.HASH, job) == "ALREADY"
    assert (await world.job_row(job.id))["status"] == "cancelled"
    await refused("TN021", world.control.sql(cancel, job.id))
    await refused("TN020", world.control.sql(cancel, uuid4()))
    await refused("TN021", world.control.sql("SELECT * FROM dedup.reset_job('anna', $1)", job.id))


async def test_a_run_asks_under_its_claim_and_gets_the_same_job(world: DedupWorld) -> None:
    await world.job("work")
    run = await world.running()
    ask = "SELECT * FROM dedup.request_for_run($1, $2, 'scan', 'photos', '{}')"
    await refused("TN021", world.worker.sql(ask, run.id, uuid4()))
    first = await world.worker.one(ask, run.id, run.claim_id)
    again = await world.worker.one(ask, run.id, run.claim_id)
    assert first["id"] == again["id"]
    assert first["requested_by"] == f"run:{run.id}"
    assert first["dry_run"]
    other = ask.replace("'scan'", "'delete'")
    await refused("TN022", world.worker.sql(other, run.id, run.claim_id))
    await refused("TN021", world.worker.sql(ask.replace("'scan'", "'hash'"), run.id, run.claim_id))
