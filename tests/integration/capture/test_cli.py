"""`tenure capture` and `tenure schedule`."""

from pathlib import Path

from tests.integration.capture.pictures import DAY, picture
from tests.integration.capture.test_api import FIRST, SECOND
from tests.integration.capture.world import DAY as DATE
from tests.integration.capture.world import World
from tests.support.command_line import Cli

SHAPE = ["session_id", "state", "error", "schedule_date", "version", "payload"]


async def test_submit_answers_in_the_pinned_shape(cli: Cli, tmp_path: Path, world: World) -> None:
    (tmp_path / "a.png").write_bytes(picture(*DAY))
    (tmp_path / "b.png").write_bytes(picture(DAY[0]))
    made = (await cli("capture", "submit", "--user", "7", "a.png", "b.png", "--json")).json()
    assert list(made)[: len(SHAPE)] == SHAPE
    assert (made["state"], made["version"], made["payload"]) == ("pending", None, None)
    audited = "SELECT bool_and(actor LIKE 'cli:%') FROM supervisor.audit WHERE action = 'capture.submit'"
    assert await world.admin.fetchval(audited)
    shown = (await cli("capture", "show", made["session_id"], "--json")).json()
    assert shown == made
    [listed] = (await cli("capture", "list", "--user", "7", "--json")).json()
    assert listed["session_id"] == made["session_id"]


async def test_waiting_ends_with_the_session_or_the_patience(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(*DAY))
    answer = await cli("capture", "submit", "--user", "7", "a.png", "--wait", "--timeout", "0.5")
    assert (answer.code, "pending" in answer.out) == (1, True)
    session = answer.out.split()[1]
    assert (await cli("capture", "refuse", session, "--reason", "not mine")).code == 0
    failed = await cli("capture", "show", session, "--wait")
    assert (failed.code, "not mine" in failed.out) == (1, True)
    assert (await cli("capture", "refuse", session, "--reason", "again")).code == 4


async def test_what_is_no_picture_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(*DAY))
    (tmp_path / "notes.txt").write_text("08:00 Pottery")
    for file, what in (
        ("notes.txt", "notes.txt is not a picture"),
        ("missing.png", "missing.png cannot be read"),
        (".", "cannot be read"),
    ):
        answer = await cli("capture", "submit", "--user", "7", "a.png", file)
        assert (answer.code, what in answer.err) == (2, True), answer.err
    assert (await cli("capture", "list", "--json")).json() == []


async def test_the_unknown_is_an_exit_code(cli: Cli) -> None:
    assert (await cli("capture", "show", "0d1e2f3a-0000-4000-8000-000000000000")).code == 5
    assert (await cli("capture", "show", "seven")).code == 2
    assert (await cli("capture", "list", "--state", "open")).code == 2
    assert (await cli("schedule", "show", "--user", "7", "--date", "2026-11-16")).code == 5
    assert (await cli("schedule", "show", "--user", "7", "--date", "monday")).code == 2


async def test_a_day_is_shown_as_a_table(cli: Cli, world: World) -> None:
    await world.version(payload=FIRST, hash_="a1")
    await world.version(payload=SECOND, hash_="a2")
    at = ("--user", "7", "--date", str(DATE))
    shown = await cli("schedule", "show", *at)
    assert [line.split() for line in shown.out.splitlines()][-2:] == [
        ["08:30", "12:00", "Pottery"],
        ["13:00", "Dentist", "Main", "St"],
    ]
    assert (await cli("schedule", "show", *at, "--version", "1", "--json")).json()["payload_hash"] == "a1"
    assert [row["version"] for row in (await cli("schedule", "versions", *at, "--json")).json()] == [2, 1]
    assert [row["current_version"] for row in (await cli("schedule", "days", *at[:2], "--json")).json()] == [
        2
    ]
    changes = (await cli("schedule", "diff", *at, "--json")).json()
    assert [entry["title"] for entry in changes["added"]] == ["Dentist"]
    told = (await cli("schedule", "diff", *at)).out
    assert [line.split()[:2] for line in told.splitlines()[1:]] == [
        ["-", "08:00"],
        ["+", "08:30"],
        ["+", "13:00"],
    ]
    same = await cli("schedule", "diff", *at, "--from", "2", "--to", "2")
    assert "say the same" in same.out
