"""The door of a real `tenure up`: a token of its own, a link that logs in, and nothing for other users."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.replica import replica, timings
from tests.support.server import own_root
from tests.support.slowness import patient, stretch
from tests.support.unprivileged import unprivileged

TENURE = (sys.executable, "-m", "supervisor.cli")
LINK = re.compile(r"^  console   (http://\S+/)(login\?code=\S+)$", re.MULTILINE)
PROBES = ("/healthz", "/readyz", "/metrics")
CLOSED = ("/", "/status", "/runs", "/api/v1/runs", "/api/v1/openapi.json", "/dedup/libraries", "/nowhere")


class Up:
    """`tenure up` with an embedded database and sample work, started with an umask that closes nothing."""

    def __init__(self, process: subprocess.Popen[bytes], root: Path) -> None:
        self.process = process
        self.root = root
        self.state = root / "state"

    def output(self) -> str:
        return (self.root / "output").read_text()

    def link(self) -> tuple[str, str] | None:
        """The console's address, and what logs in there."""
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.output()}"
        found = LINK.search(self.output())
        return None if found is None else (found[1], found[1] + found[2])

    async def console(self) -> tuple[str, str]:
        found = await eventually(self.link, timeout=90, what="the link")
        assert found is not None
        return found

    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.state / 'token').read_text().strip()}"}


def settings(root: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    chosen = {"TENURE_STATE_DIR": str(root / "state"), "TENURE_DRAIN_SECONDS": "1", **timings(stretch())}
    return {**clean, **chosen}


@contextmanager
def up(root: Path, mode: int = 0o600) -> Iterator[Up]:
    """`mode`: who may read its output."""
    with (root / "output").open("wb") as output:
        os.fchmod(output.fileno(), mode)
        process = subprocess.Popen(
            [*TENURE, "up", "--replicas", "2", "--sample", "--port", "0"],
            env=settings(root),
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=0,
        )
    try:
        yield Up(process, root)
        process.terminate()
        assert process.wait(patient(60)) == 0
    finally:
        process.kill()
        process.wait()


def tenure(root: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*TENURE, *arguments],
        env={**settings(root), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    assert "Traceback" not in done.stderr
    return done


def client(base_url: str = "") -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url, timeout=patient(30), follow_redirects=True, trust_env=False)


def exposed(state: Path) -> dict[str, str]:
    """What other users have a right to, apart from the database, which is an account's of its own."""
    found = {str(path.relative_to(state)): path.lstat() for path in state.rglob("*")}
    return {
        name: stat.filemode(facts.st_mode)
        for name, facts in found.items()
        if not name.startswith("postgres/") and not stat.S_ISLNK(facts.st_mode) and facts.st_mode & 0o077
    }


async def test_one_command_prints_a_link_that_works_and_other_users_get_nothing() -> None:
    """A user without a credential defined a command on a default `tenure up`, and ran it as root."""
    root = own_root()
    with up(root) as first:
        url, link = await first.console()
        async with client() as http, client() as other:
            page = await http.get(link)
            assert (page.status_code, str(page.url)) == (200, url)
            assert (await http.get(f"{url}status")).status_code == 200
            assert (await http.get(f"{url}runs")).status_code == 200
            again = await other.get(link)
            assert again.status_code == 401
            assert "tenure open" in again.text.partition('role="alert"')[2]
            await _only_probes(other, url)
        await _is_closed(first)
        token = first.token()
        async with client(url) as program:
            assert (await program.get("/status", headers=token)).status_code == 200
        assert first.output().count(link) == 1
        assert token["Authorization"].split()[1] not in first.output()
        await _open_finds_it(first)
    ended = tenure(root, "open")
    assert ended.returncode == 5
    assert "no `tenure up` of this user" in ended.stderr
    assert "start one with `tenure up`" in ended.stderr
    (root / "state" / "artifacts").chmod(0o755)
    with up(root, mode=0o644) as second:
        await eventually(lambda: "tenure open" in second.output(), timeout=90, what="the way in")
        assert "login?code" not in second.output(), "others may read it"
        assert second.token() == token, "kept over a restart"
        assert exposed(second.state).keys() <= {"postgres"}


async def _only_probes(http: httpx.AsyncClient, url: str) -> None:
    for path in PROBES:
        assert (await http.get(url + path[1:])).status_code == 200, path
    http.follow_redirects = False
    for path in CLOSED:
        assert (await http.get(url + path[1:])).status_code == 401, path
    definition: dict[str, Any] = {"domain": "command", "payload": {"argv": ["id"]}}
    taken = await http.put(f"{url}api/v1/job-definitions/lpe", json=definition)
    assert taken.status_code == 401


async def _is_closed(first: Up) -> None:
    """Also what samples and syncs have made, and as a user who may not read everything."""

    def synced() -> bool:
        return any((first.state / "scm" / "mirrors").glob("*.git")) or not (first.state / "scm").exists()

    await eventually(synced, timeout=90, what="the mirror of the sample's repository")
    assert exposed(first.state).keys() <= {"postgres"}
    assert stat.S_IMODE(first.state.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    if os.geteuid() == 0:
        assert stat.S_IMODE((first.state / "postgres").stat().st_mode) == 0o711
        with unprivileged():
            for name in ("token", "embedded.json", "scm/mirrors", "logins"):
                with pytest.raises(PermissionError):
                    (first.state / name).open().close()


async def _open_finds_it(first: Up) -> None:
    """`tenure open` prints another link, and hands it to a browser by a file that others cannot read."""
    seen, browser = first.root / "seen", first.root / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" > {seen}; cat "${{1#file://}}" >> {seen}\n')
    browser.chmod(0o700)
    opened = tenure(first.root, "open", "--json", "--browser", BROWSER=f"{browser} %s")
    assert opened.returncode == 0, opened.stderr
    link = str(httpx.Response(200, text=opened.stdout).json()["url"])
    address, page = seen.read_text().split("\n", 1)
    assert link in page
    assert link not in address
    assert exposed(first.state).keys() <= {"postgres"}
    async with client() as http:
        answer = await http.get(link)
        assert (answer.status_code, answer.url.path) == (200, "/")
    plain = tenure(first.root, "open")
    assert plain.stdout.startswith(f"{link.partition('login')[0]}login?code=")
    assert plain.stdout.strip() != link


async def test_replicas_of_one_state_directory_find_the_same_token(database: Urls, tmp_path: Path) -> None:
    """With a database of one's own, each in a `tenure up` of its own."""
    shared = {"TENURE_API_TOKEN": "", "TENURE_STATE_DIR": str(tmp_path / "state")}
    async with replica(database, tmp_path, env=shared) as one, replica(database, tmp_path, env=shared) as two:
        found = LINK.search(one.output())
        assert found is not None, one.output()
        async with client() as http:
            assert (await http.get(found[1] + found[2])).status_code == 200
            for each in (one, two):
                answer = await http.get(f"http://127.0.0.1:{each.port}/status")
                assert answer.status_code == 200, "a cookie knows no port"
        token = {"Authorization": f"Bearer {(tmp_path / 'state' / 'token').read_text().strip()}"}
        for each in (one, two):
            async with client(f"http://127.0.0.1:{each.port}") as http:
                assert (await http.get("/api/v1/runs", headers=token)).status_code == 200
                assert (await http.get("/api/v1/runs")).status_code == 401


async def test_a_token_that_others_may_know_starts_nothing(database: Urls, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "token").write_text("x" * 40)
    (state / "token").chmod(0o644)
    refused = tenure(tmp_path, "up", TENURE_DATABASE_URL=database.control)
    assert refused.returncode == 1
    assert "other users may have read it" in refused.stderr
    assert "remove the file" in refused.stderr
