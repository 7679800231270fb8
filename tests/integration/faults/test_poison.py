"""Commands that misbehave: each costs its own attempts and nobody else's."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.replicas import C, Fleet, replicas
from tests.support.slowness import patient

pytestmark = pytest.mark.slow
Record = Callable[[str, object], None]

ATTEMPTS = 2
TOKEN = "$TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM"
NOTE = f'read now _ < /proc/uptime; echo "$now begin {TOKEN} $$" >> "$0"; '
GREEDY = 'import resource as r; r.setrlimit(r.RLIMIT_AS, (2**27, 2**27)); b"x" * 2**30'
# what it does, how its attempts end, with which code
POISON = {
    "segfault": (NOTE + "kill -SEGV $$", "FAILED", "SIGNAL_SIGSEGV"),
    "endless": (NOTE + "while :; do :; done", "TIMED_OUT", "TIMEOUT"),
    "deaf": (NOTE + "trap '' TERM INT HUP; while :; do sleep 0.05; done", "TIMED_OUT", "TIMEOUT"),
    "brood": (
        NOTE + 'for n in 1 2 3 4 5 6 7 8; do ( setsid sleep 600 & echo "$!" >> "$0.pids" ); done; exit 7',
        "FAILED",
        "EXIT_7",
    ),
    "suicide": (NOTE + "kill -KILL 0", "FAILED", "SIGNAL_SIGKILL"),
    "kills-its-launcher": (NOTE + "sleep 0.2; kill -KILL $PPID; sleep 600", "FAILED", "STOPPED"),
    "greedy": (
        NOTE + f"exec {sys.executable} -c '{GREEDY}'",
        "FAILED",
        "EXIT_1",
    ),
}


async def test_poison_is_bounded_and_the_others_are_unaffected(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C34: at most max_attempts executions each; good work beside them all succeeds at its first attempt."""
    # confined, a command of the replica's own user could not even reach its launcher
    async with replicas(database, tmp_path, TENURE_COMMAND_CONFINED="false") as fleet:
        for name, (script, state, _) in POISON.items():
            # what only its time ends uses a processor for all of it
            bound = (1.5 if state == "TIMED_OUT" else 3) * fleet.stretch
            payload = fleet.effects.script(script)
            await fleet.define(name, payload, max_attempts=ATTEMPTS, timeout_seconds=bound)
        await fleet.define("good", fleet.effects.command(0.5))
        await fleet.define("at-once", fleet.effects.script(NOTE + "exit 0"))
        poison = {name: (await fleet.trigger(name))[0] for name in POISON}
        good = [*await fleet.trigger("good", 20), *await fleet.trigger("at-once", 5)]
        await fleet.until(lambda: fleet.succeeded(good), within=20, what="the good ones to succeed")
        assert {row["attempt"] for row in await fleet.last(good)} == {1}, "good work was run again"

        async def over() -> bool:
            rows = [await fleet.root(run) for run in poison.values()]
            return all(len(row) == ATTEMPTS and row[-1]["finished_at"] for row in rows)

        await fleet.until(over, within=40, what="the last attempt of every poison")
        for name, run in poison.items():
            _, state, code = POISON[name]
            rows = await fleet.root(run)
            assert [(row["state"], row["error_code"]) for row in rows] == [(state, code)] * ATTEMPTS, name
            assert [row["starts"] for row in rows] == [1, 2], name
            assert all(row["finished_by"] == "worker" for row in rows), name
        await nothing_more_happens(fleet, list(poison.values()))
        assert all(one.alive for one in fleet.members)
        assert len(await fleet.epochs()) == 1
        left = [int(pid) for pid in (tmp_path / "effects.pids").read_text().split()]
        assert len(left) == 8 * ATTEMPTS
        assert not [pid for pid in left if Path(f"/proc/{pid}").exists()], "children outlived their run"


async def nothing_more_happens(fleet: Fleet, runs: list[int]) -> None:
    """No retry is owed; the newest row of each is the last one."""
    for row in await fleet.last(runs):
        assert (row["retry_at"], row["next_attempt_id"]) == (None, None)
    executions = fleet.effects.executions().values()
    roots = {row["id"]: run for run in runs for row in await fleet.root(run)}
    counts = [sum(1 for one in executions if roots.get(one.run_id) == run) for run in runs]
    assert counts == [ATTEMPTS] * len(runs)


async def test_a_run_over_its_own_time_is_timed_out_by_its_worker_and_retried(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    async with replicas(database, tmp_path, count=2) as fleet:
        # slow at the first attempt only
        script = NOTE + '[ "$TENURE_ATTEMPT" -gt 1 ] || sleep 60'
        seconds = 1.5 * fleet.stretch
        await fleet.define("slow", fleet.effects.script(script), timeout_seconds=seconds)
        (run,) = await fleet.trigger("slow")
        await fleet.until(lambda: fleet.succeeded([run]), within=1.5 + C + 5, what="the second attempt")
        first, second = await fleet.root(run)
        assert (first["state"], first["error_code"]) == ("TIMED_OUT", "TIMEOUT")
        assert first["finished_by"] == "worker"
        taken = (first["finished_at"] - first["started_at"]).total_seconds()
        record_property("timed out after seconds", round(taken, 2))
        assert 0.9 * seconds < taken < seconds + patient(1.5)
        assert first["executor_stopped_at"] <= second["started_at"]
        assert (second["attempt"], second["starts"]) == (2, 2)
