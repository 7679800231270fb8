"""Why a run does not run, told from a database in which it really is so; the leader agrees each time."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import schemas
from supervisor.config import Timings
from supervisor.embedded import Urls
from supervisor.errors import NotFound
from supervisor.store import Store
from supervisor.why import Why, explain
from tests.support.scene import Scene, secret_of

TIMINGS = Timings()
AT_ONCE = Timings(confirm_after=0)
"""Everybody is silent."""


class Stage(Scene):
    """A scene, and the question."""

    store: Store

    async def why(self, run: int, timings: Timings = TIMINGS) -> Why:
        return await explain(self.store, run, timings)

    async def told(self, run: int, timings: Timings = TIMINGS) -> tuple[str, dict[str, Any]]:
        reason = (await self.why(run, timings)).reason
        assert reason.sentence
        assert reason.next
        return reason.code, dict(reason.evidence)

    async def given_out(self, run: int, worker: str = "w1") -> bool:
        """What the leader's own call does with it."""
        version = await self.value("SELECT version FROM supervisor.job_run WHERE id = $1", run)
        rows = await self.connection.fetch(
            "SELECT id FROM supervisor.assign($1, $2, $3, $4, '{}', '{}', 7)",
            self.epoch,
            [run],
            [version],
            [worker],
        )
        return bool(rows)

    async def join(self, worker: str, domains: list[str], slots: int = 4, *, draining: bool = False) -> None:
        await self.connection.execute(
            "SELECT supervisor.beat($1, $2, 1, 0, '{}', $3, $4, 30, $5)",
            worker,
            secret_of(worker),
            domains,
            slots,
            draining,
        )

    async def next_of_a_lost_run(self, job: str) -> int:
        """Ended by the leader, and w1 has not said that it stopped."""
        lost = await self.run_to("RUNNING", job)
        await self.value("SELECT supervisor.request_cancel('ann', $1)", lost)
        version = await self.value("SELECT version FROM supervisor.job_run WHERE id = $1", lost)
        await self.value("SELECT supervisor.cancel($1, 'w1', $2, $3, 0)", self.epoch, [lost], [version])
        await self.value("SELECT supervisor.request_retry('ann', $1)", lost)
        assert (await self.told(lost))[0] == "NEXT_ATTEMPT_OWED"
        [run] = await self.next_attempts()
        return run

    async def pass_time(self, seconds: int) -> None:
        """In which nobody was heard, and the leader led."""
        await self.force(
            "UPDATE supervisor.leader_epoch SET since = since - make_interval(secs => $1)", seconds
        )
        await self.force(
            "UPDATE supervisor.worker SET heartbeat_at = heartbeat_at - make_interval(secs => $1)", seconds
        )

    async def fail_over(self) -> None:
        """A leader that knows a later epoch than this server: commits were lost."""
        seen = await self.connection.fetchrow("SELECT * FROM supervisor.leader_epoch")
        assert seen is not None
        self.epoch = await self.value(
            "SELECT epoch FROM supervisor.acquire('w1', 60, 7, $1, $2, $3)",
            self.epoch + 5,
            seen["system_identifier"],
            seen["timeline"],
        )


@pytest.fixture
async def stage(database: Urls) -> AsyncIterator[Stage]:
    """Nobody leads, and nobody works yet."""
    stage = await Stage.open(database)
    assert isinstance(stage, Stage)
    stage.store = Store(database.control)
    await stage.job()
    yield stage
    await stage.store.close()
    await stage.close()


@pytest.fixture
async def led(stage: Stage) -> Stage:
    await stage.lead("w1")
    await stage.beat("w1")
    return stage


async def test_it_is_in_line_and_the_leader_takes_it(led: Stage) -> None:
    first, second = await led.enqueue(), await led.enqueue()
    assert await led.told(second) == ("IN_LINE", {"ahead": 1, "free_slots": 4, "leader": "w1"})
    assert (await led.why(first)).answer()["evidence"]["ahead"] == 0
    assert await led.given_out(second)


async def test_no_such_run(led: Stage) -> None:
    with pytest.raises(NotFound, match="no run 404"):
        await led.why(404)


async def test_not_due(led: Stage) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    run = await led.enqueue(not_before=due)
    answer = (await led.why(run)).answer()
    assert answer.keys() == {"id", "state", "reason", "sentence", "until", "evidence", "next"}
    assert (answer["id"], answer["state"], answer["reason"]) == (run, "PENDING", "NOT_DUE")
    assert answer["until"] == due
    assert not await led.given_out(run)


async def test_job_disabled_since_when_and_by_whom(led: Stage) -> None:
    run = await led.enqueue()
    for actor, spec in [
        ("bob", '{"priority": 3}'),
        ("ann", '{"enabled": false}'),
        ("bob", '{"priority": 4}'),
    ]:
        await led.value("SELECT supervisor.save_job($1, 'job', $2::text::jsonb, false)", actor, spec)
    at = await led.value("SELECT at FROM supervisor.audit WHERE actor = 'ann'")
    assert await led.told(run) == ("JOB_DISABLED", {"since": at, "by": "ann"})
    assert not await led.given_out(run)


async def test_domain_paused_since_when_and_by_whom(led: Stage) -> None:
    run = await led.enqueue()
    await led.value("SELECT supervisor.pause_domain('ann', 'command', true)")
    at = await led.value("SELECT paused_at FROM supervisor.domain_pause")
    assert await led.told(run) == ("DOMAIN_PAUSED", {"since": at, "by": "ann"})
    assert not await led.given_out(run)


async def test_no_replica_for_the_domain_and_which_there_are(led: Stage) -> None:
    await led.job("hash", domain="dedup", action="rescan-all", payload={})
    run = await led.enqueue("hash")
    await led.join("w2", ["scm"])
    await led.join("w3", ["dedup"], draining=True)
    code, evidence = await led.told(run)
    assert (code, evidence["replicas"]) == ("NO_REPLICA", {"w3": "draining"})
    assert evidence["live"] == {"w1": ["command"], "w2": ["scm"]}
    assert "work for command, scm" in (await led.why(run)).reason.sentence
    assert not await led.given_out(run)
    silent = await led.why(await led.enqueue(), AT_ONCE)
    assert (silent.reason.code, silent.reason.evidence["replicas"]) == ("NO_REPLICA", {"w1": "silent"})


async def test_all_slots_taken_by_another_domain_too(led: Stage) -> None:
    await led.job("gather", domain="media")
    await led.join("w1", ["command", "media"], slots=2)
    await led.run_to("ASSIGNED", "gather")
    await led.run_to("RUNNING")
    run = await led.enqueue()
    code, evidence = await led.told(run)
    assert code == "NO_FREE_SLOT"
    assert evidence == {"replicas": {"w1": "2/2"}, "runs": {"media": 1, "command": 1}, "ahead": 0}


async def test_concurrency_limit_by_which_runs(led: Stage) -> None:
    await led.job("one", concurrency=1)
    other = await led.run_to("RUNNING", "one")
    run = await led.enqueue("one")
    assert await led.told(run) == ("CONCURRENCY_LIMIT", {"runs": [other]})
    assert not await led.given_out(run)
    await led.finish(other)
    assert (await led.told(run))[0] == "IN_LINE"


async def test_a_limit_above_what_is_listed_is_seen(led: Stage) -> None:
    """Evidence is cut at a hundred runs; what is counted is not."""
    await led.job("many", concurrency=101)
    await led.join("w1", ["command"], slots=200)
    await led.connection.execute(
        "SELECT e.id FROM generate_series(1, 101) n, supervisor.enqueue('many', '{}', n::text, NULL, NULL) e"
    )
    await led.connection.execute(
        "SELECT supervisor.assign($1, array_agg(id), array_agg(version), array_agg('w1'::text), '{}', '{}',"
        " 7) FROM supervisor.job_run",
        led.epoch,
    )
    code, evidence = await led.told(await led.enqueue("many"))
    assert (code, len(evidence["runs"])) == ("CONCURRENCY_LIMIT", 100)


async def test_an_earlier_attempt_may_still_run(led: Stage) -> None:
    """Ended by the leader, not by its worker: until that one has stopped, nothing follows."""
    run = await led.next_of_a_lost_run("job")
    lost = await led.value("SELECT retry_of_id FROM supervisor.job_run WHERE id = $1", run)
    heard = await led.value("SELECT heartbeat_at FROM supervisor.worker")
    found = (await led.why(run)).reason
    assert (found.code, found.evidence) == ("AWAITING_QUIESCE", {"run_id": lost, "worker_id": "w1"})
    assert found.until == heard + timedelta(seconds=30)
    assert not await led.given_out(run)
    ended = (await led.why(lost)).reason
    assert (ended.code, ended.next) == ("ENDED", f"`tenure run why {run}`")


async def test_an_attempt_that_has_stopped_is_no_reason(led: Stage) -> None:
    """Its worker was lost long ago without a word: what takes the only place is the run that is there now."""
    await led.job("one", concurrency=1)
    run = await led.next_of_a_lost_run("one")
    await led.pass_time(600)
    await led.beat("w2")
    assert (await led.told(run))[0] == "IN_LINE"
    other = await led.enqueue("one")
    seq = await led.value("SELECT beat_seq FROM supervisor.worker WHERE worker_id = 'w1'")
    await led.value(
        "SELECT supervisor.assign($1, $2, '{1}', '{w2}', '{w1}', $3, 7)", led.epoch, [other], [seq]
    )
    await led.start(other)
    assert await led.told(run) == ("CONCURRENCY_LIMIT", {"runs": [other]})


async def test_a_new_leader_watches_the_lost_worker_itself(led: Stage) -> None:
    """Silence that a new leader has not watched yet holds the attempt, and its place, for D once more."""
    await led.job("one", concurrency=1)
    run = await led.next_of_a_lost_run("one")
    other = await led.enqueue("one")
    await led.pass_time(600)
    await led.value("SELECT supervisor.resign($1, 'w1', 'test')", led.epoch)
    await led.lead("w2")
    await led.beat("w2")
    since = await led.value("SELECT since FROM supervisor.leader_epoch")
    found = (await led.why(run)).reason
    assert (found.code, found.until) == ("AWAITING_QUIESCE", since + timedelta(seconds=30))
    assert not await led.given_out(run, "w2")
    assert (await led.told(other))[0] == "CONCURRENCY_LIMIT"
    assert not await led.given_out(other, "w2")


async def test_retry_back_off_until_when(led: Stage) -> None:
    failed = await led.run_to("RUNNING")
    await led.finish(failed, "FAILED", "EXIT_1", delay=3600)
    owed = (await led.why(failed)).reason
    assert (owed.code, owed.evidence["error_code"]) == ("NEXT_ATTEMPT_OWED", "EXIT_1")
    [run] = await led.next_attempts()
    found = (await led.why(run)).reason
    assert (found.code, found.evidence) == ("RETRY_BACKOFF", {"retry_of_id": failed, "attempt": 2})
    assert found.until == owed.until
    assert not await led.given_out(run)


async def test_no_leader_since_when(led: Stage) -> None:
    run = await led.enqueue()
    await led.value("SELECT supervisor.resign($1, 'w1', 'test')", led.epoch)
    at = await led.value("SELECT expires_at FROM supervisor.leader_lease")
    assert await led.told(run) == ("NO_LEADER", {"since": at, "last_leader": "w1"})


async def test_nobody_ever_led(stage: Stage) -> None:
    assert await stage.told(await stage.enqueue()) == ("NO_LEADER", {})


async def test_a_lease_of_another_timeline_leads_nobody(led: Stage) -> None:
    """The server was promoted, and its leader has not been seen on it: the lease says nothing."""
    run = await led.enqueue()
    await led.force("UPDATE supervisor.leader_epoch SET timeline = timeline + 1")
    assert await led.told(run) == ("NO_LEADER", {"last_leader": "w1"})


async def test_quarantine_after_a_failover(led: Stage) -> None:
    assigned = await led.run_to("ASSIGNED")
    run = await led.enqueue()
    await led.fail_over()
    until = await led.value("SELECT quarantine_until FROM supervisor.leader_epoch")
    found = (await led.why(run)).reason
    assert (found.code, found.until) == ("QUARANTINE", until)
    assert not await led.given_out(run)
    older = (await led.why(assigned)).reason
    assert (older.code, older.until) == ("ASSIGNED_BEFORE_FAILOVER", until)


async def test_confirming_until_when(led: Stage) -> None:
    run = await led.run_to("RUNNING")
    seq = await led.value("SELECT beat_seq FROM supervisor.worker")
    await led.value("SELECT supervisor.confirm($1, '{w1}', $2, 0, 30, 3)", led.epoch, [seq])
    deadline = await led.value("SELECT continuation_check_deadline_at FROM supervisor.job_run")
    found = (await led.why(run)).reason
    assert (found.code, found.until) == ("CONFIRMING", deadline)
    assert found.evidence["continuation_reason"] == "SILENT"
    alone = await led.run_to("CONFIRMING")
    assert (await led.told(alone))[1]["continuation_reason"] == "NO_LEADER"


async def test_after_a_change_of_leader_confirming_lasts_longer(led: Stage) -> None:
    run = await led.run_to("RUNNING")
    seq = await led.value("SELECT beat_seq FROM supervisor.worker")
    await led.value("SELECT supervisor.confirm($1, '{w1}', $2, 0, 30, 3)", led.epoch, [seq])
    await led.value("SELECT supervisor.resign($1, 'w1', 'test')", led.epoch)
    assert (await led.why(run)).reason.until is None
    await led.lead("w2")
    since = await led.value("SELECT since FROM supervisor.leader_epoch")
    assert (await led.why(run)).reason.until == since + timedelta(seconds=30)


async def test_running_where_since_when_and_last_heard(led: Stage) -> None:
    run = await led.run_to("RUNNING")
    started = await led.value("SELECT started_at FROM supervisor.job_run")
    heard = await led.value("SELECT heartbeat_at FROM supervisor.worker")
    assert await led.told(run) == ("RUNNING", {"worker_id": "w1", "started_at": started, "heard_at": heard})


async def test_a_cancel_waits_for_the_worker(led: Stage) -> None:
    run = await led.run_to("RUNNING")
    await led.value("SELECT supervisor.request_cancel('ann', $1)", run)
    asked = await led.value("SELECT cancel_requested_at FROM supervisor.job_run")
    found = (await led.why(run)).reason
    assert (found.code, found.until) == ("CANCELLING", asked + timedelta(seconds=TIMINGS.stop_bound))
    assert (found.evidence["waits_for"], found.evidence["cancel_requested_by"]) == ("w1", "ann")


@pytest.mark.parametrize("state", ["PENDING", "ASSIGNED", "ORPHANED"])
async def test_a_cancel_of_what_has_not_started_waits_for_the_leader(led: Stage, state: str) -> None:
    run = await led.run_to(state)
    await led.value("SELECT supervisor.request_cancel('ann', $1)", run)
    code, evidence = await led.told(run)
    assert (code, evidence["waits_for"]) == ("CANCEL_REQUESTED", "w1")
    await led.value("SELECT supervisor.resign($1, 'w1', 'test')", led.epoch)
    code, evidence = await led.told(run)
    assert (code, evidence["cancel_requested_by"]) == ("CANCEL_REQUESTED", "ann")
    assert evidence["since"]


async def test_assigned_and_not_started_since_when(led: Stage) -> None:
    run = await led.run_to("ASSIGNED")
    at = await led.value("SELECT assigned_at FROM supervisor.job_run")
    code, evidence = await led.told(run)
    assert (code, evidence["assigned_at"], evidence["waits_for"]) == ("AWAITING_START", at, "w1")
    silent = (await led.why(run, AT_ONCE)).reason
    assert (silent.code, silent.until) == ("WORKER_SILENT", at + timedelta(seconds=60))


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"])
async def test_ended_with_what_outcome(led: Stage, state: str) -> None:
    await led.job("once", max_attempts=1)
    run = await led.run_to(state, "once")
    found = (await led.why(run)).reason
    assert (found.code, found.evidence["finished_by"]) == ("ENDED", "worker")
    assert state in found.sentence
    assert (f"tenure run retry {run}" in found.next) == (state != "SUCCEEDED")


@pytest.mark.fresh_database
async def test_the_audit_is_searched_only_for_what_is_disabled_or_cancelled(led: Stage) -> None:
    """A long audit costs nothing where it has nothing to say."""
    run = await led.enqueue()
    await led.value("SELECT supervisor.save_job('ann', 'job', '{\"priority\": 1}', false)")
    sql = schemas.queries()["read_why"].sql
    plan = await led.connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", [run], 30.0)
    scans = [row[0] for row in plan if "on audit" in row[0]]
    assert scans
    assert all("never executed" in scan or "actual rows=0" in scan for scan in scans)
