"""A Subversion repository behind svnserve, read to the end, in the middle, again, and against its will."""

import hashlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest

from actors.scm.address import AddressRules, parse, resolve
from actors.scm.backoff import Trouble
from actors.scm.process import Programs
from actors.scm.records import Batch, SourceFailed, SvnRevision
from actors.scm.surroundings import Secret
from actors.scm.svn import SvnOptions, SvnSource
from actors.scm.svn_batches import SvnStart, svn_batches
from supervisor.clock import boottime
from supervisor.descendants import descendants
from tests.support.eventually import eventually
from tests.support.svn_server import Node, Revision, SvnServer, load, many, needs_svn, svn_server

pytestmark = needs_svn

RULES = AddressRules(allow_private=True, allow_file=True)
SMALL = SvnOptions(batch_size=10, log_limit=20, diffs=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SvnServer]:
    root = tmp_path_factory.mktemp("svn")
    load(root / "many", many(60))
    load(root / "empty", [])
    with svn_server(root) as running:
        yield running


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path, deadline=boottime() + 600, kill_seconds=2.0, idle_seconds=30.0)


async def source(programs: Programs, url: str, secret: Secret | None = None) -> SvnSource:
    return SvnSource(programs, await resolve(parse(url, "svn", RULES), RULES), secret=secret)


async def read(
    source: SvnSource, start: SvnStart, options: SvnOptions = SMALL
) -> tuple[list[SvnRevision], list[Batch[SvnRevision]]]:
    found: list[SvnRevision] = []
    batches: list[Batch[SvnRevision]] = []
    async with svn_batches(source, start, options) as stream:
        async for batch in stream:
            found += batch.records
            batches.append(batch)
            batch.close()
    return found, batches


def svn(*arguments: str) -> bytes:
    command = ["svn", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


async def test_all_of_it_is_what_svn_log_says(server: SvnServer, programs: Programs) -> None:
    """R001-019, R001-020, R001-023, R001-165: in pages of the log's limit, and nothing is missing."""
    found, batches = await read(await source(programs, server.url("many")), SvnStart())
    log = ET.fromstring(svn("log", "--xml", "-v", "-r", "1:HEAD", server.url("many")))  # noqa: S314  our own
    assert [record.rev for record in found] == list(range(1, 61))
    for record, entry in zip(found, log, strict=True):
        assert record.rev == int(entry.attrib["revision"])
        assert record.author == (entry.findtext("author") or "(no author)")
        date = entry.findtext("date")
        assert date is not None
        assert record.ts is not None
        assert record.ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ") == date
        assert record.message == entry.findtext("msg")
        paths = [(path.text, path.attrib["action"], path.attrib["kind"]) for path in entry.iter("path")]
        assert [(path.path, path.action, path.kind) for path in record.changed_paths] == paths
    assert [len(batch.records) for batch in batches] == [10] * 6
    assert [batch.watermark for batch in batches] == [10, 20, 30, 40, 50, 60]
    assert [batch.has_more for batch in batches] == [True] * 5 + [False]
    assert "(no author)" in {record.author for record in found}


async def test_it_goes_on_behind_the_cursor(server: SvnServer, programs: Programs) -> None:
    """R001-120, R001-127, R001-183: the watermark is a revision; overlap reads some of them again."""
    many_source = await source(programs, server.url("many"))
    _, batches = await read(many_source, SvnStart(last=35))
    position = batches[-1].position
    assert position["rev"] == 35
    found, _ = await read(many_source, SvnStart.after(position))
    assert [record.rev for record in found] == list(range(36, 61))
    found, _ = await read(many_source, SvnStart.after(position, overlap=3))
    assert [record.rev for record in found] == list(range(33, 61))
    found, batches = await read(many_source, SvnStart.after({"rev": 60}))
    assert found == []
    assert [(batch.watermark, batch.has_more) for batch in batches] == [(60, False)]


async def test_a_range_is_read_again(server: SvnServer, programs: Programs) -> None:
    """R001-129."""
    found, _ = await read(await source(programs, server.url("many")), SvnStart(first=5, last=9))
    assert [record.rev for record in found] == [5, 6, 7, 8, 9]


async def test_an_empty_repository_has_nothing(server: SvnServer, programs: Programs) -> None:
    found, batches = await read(await source(programs, server.url("empty")), SvnStart())
    assert found == []
    assert [(batch.watermark, batch.has_more) for batch in batches] == [(0, False)]


async def test_of_a_folder_only_its_revisions_are_read(tmp_path: Path, programs: Programs) -> None:
    revisions = [Revision([Node("a"), Node("b")]), Revision([Node("a/1", content=b"x\n")])]
    revisions += [Revision([Node(f"b/{number}", content=b"x\n")]) for number in range(10)]
    revisions += [Revision([Node("a/2", content=b"y\n")]), Revision([Node("b/x", content=b"z\n")])]
    load(tmp_path / "r", revisions)
    options = SvnOptions(batch_size=2, log_limit=2, diffs=True)
    found, batches = await read(await source(programs, f"file://{tmp_path}/r/a"), SvnStart(), options)
    assert [record.rev for record in found] == [1, 2, 13]
    assert batches[-1].watermark == 14


async def test_every_diff_is_the_one_svn_makes(server: SvnServer, programs: Programs) -> None:
    """R001-033, R001-067: SHA-256 and size are those of the bytes that `svn diff` prints."""
    options = SvnOptions(batch_size=7, log_limit=20, parallelism=3)
    seen = 0
    async with svn_batches(await source(programs, server.url("many")), SvnStart(last=20), options) as stream:
        async for batch in stream:
            assert [diff.of for diff in batch.diffs] == [str(record.rev) for record in batch.records]
            for diff in batch.diffs:
                expected = svn("diff", "-c", diff.of, server.url("many"))
                assert diff.read() == expected
                assert (diff.sha256, diff.size) == (hashlib.sha256(expected).hexdigest(), len(expected))
                seen += 1
            batch.close()
    assert seen == 20


async def test_large_and_binary_diffs(tmp_path: Path, programs: Programs) -> None:
    """R001-161: beyond the limit there is a reason and a count instead of content."""
    large = b"".join(b"line %d\n" % number for number in range(20_000))
    nodes = [Node("large", content=large), Node("other", content=b"x\n")]
    load(tmp_path / "r", [Revision(nodes), Revision([Node("bin", content=bytes(range(256)) * 4)])])
    url = f"file://{tmp_path}/r"
    options = SvnOptions(diff_limit_bytes=50_000)
    _, (batch,) = await read(await source(programs, url), SvnStart(), options)
    first, second = batch.diffs
    assert (first.sha256, first.reason) == (None, "diff_too_large:50000")
    assert first.ministat is not None
    assert first.ministat.files == 2
    assert 50_000 < first.ministat.bytes < 200_000, "the rest of it is not read"
    assert not second.degraded


async def test_a_diff_that_takes_too_long_is_told_of(server: SvnServer, programs: Programs) -> None:
    options = SvnOptions(diff_seconds=0.0)
    _, (batch,) = await read(await source(programs, server.url("many")), SvnStart(last=2), options)
    assert [diff.reason for diff in batch.diffs] == ["diff_timeout:0"] * 2


async def test_more_than_a_hundred_paths_are_bulk(tmp_path: Path, programs: Programs) -> None:
    """R001-021, R001-022."""
    for name, count in (("r", 100), ("s", 150)):
        load(tmp_path / name, [Revision([Node(f"f{number}", content=b"x") for number in range(count)])])
    (hundred,), _ = await read(await source(programs, f"file://{tmp_path}/r"), SvnStart())
    (more,), _ = await read(await source(programs, f"file://{tmp_path}/s"), SvnStart())
    assert (hundred.bulk.is_bulk, more.bulk.is_bulk, more.bulk.reason) == (False, True, "large_changeset:150")


async def test_odd_names_and_messages(tmp_path: Path, programs: Programs) -> None:
    names = ["-rf", "a@b", "a b", "ümlaut", "<x>&", "%41", "--help"]
    huge = b"x" * (1 << 21)
    revisions = [
        Revision([Node(name, content=b"x\n") for name in names], author=None, date=None, message=None),
        Revision([Node("more", content=b"y\n")], author="<a&b>", message=b"]]> \x07 <!DOCTYPE x>"),
        Revision([Node("again", content=b"y\n")], message=huge),
    ]
    load(tmp_path / "r", revisions)
    found, (batch,) = await read(await source(programs, f"file://{tmp_path}/r"), SvnStart(), SvnOptions())
    assert {path.path for path in found[0].changed_paths} == {f"/{name}" for name in names}
    assert (found[0].author, found[0].message) == ("(no author)", "")
    assert found[1].author == "<a&b>"
    assert "<!DOCTYPE x>" in found[1].message
    assert (len(found[2].message), found[2].cut) == (1 << 20, True)
    assert not any(diff.degraded for diff in batch.diffs)


async def test_another_repository_under_the_address_is_refused(tmp_path: Path, programs: Programs) -> None:
    load(tmp_path / "r", many(3))
    here = await source(programs, f"file://{tmp_path}/r")
    _, batches = await read(here, SvnStart())
    (tmp_path / "r").rename(tmp_path / "old")
    load(tmp_path / "r", many(5))
    with pytest.raises(SourceFailed, match="another repository") as refusal:
        await read(here, SvnStart.after(batches[-1].position))
    assert refusal.value.trouble.permanent
    with pytest.raises(SourceFailed, match="was read before") as behind:
        await read(here, SvnStart.after({"rev": 9}))
    assert not behind.value.trouble.permanent


async def test_what_is_not_there_and_who_does_not_answer(server: SvnServer, programs: Programs) -> None:
    """R001-188: one waits for the operator, the other for better times."""
    with pytest.raises(SourceFailed) as absent:
        await (await source(programs, server.url("nothing"))).head()
    assert absent.value.trouble is Trouble.NOT_FOUND
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        with pytest.raises(SourceFailed) as refused:
            await (await source(programs, f"svn://127.0.0.1:{port}/r")).head()
    assert refused.value.trouble is Trouble.CONNECTION


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_silent_server_is_given_up(tmp_path: Path, silent: int) -> None:
    programs = Programs(tmp_path, deadline=boottime() + 600, kill_seconds=2.0, idle_seconds=0.3)
    with pytest.raises(SourceFailed) as refusal:
        await (await source(programs, f"svn://127.0.0.1:{silent}/r")).head()
    assert refusal.value.trouble is Trouble.TIMEOUT


async def test_a_reader_that_is_cancelled_leaves_no_svn_behind(programs: Programs, silent: int) -> None:
    here = await source(programs, f"svn://127.0.0.1:{silent}/r")

    def running() -> list[int]:
        return [process.pid for process in descendants(os.getpid()) if _name(process.pid) == "svn"]

    async with anyio.create_task_group() as group:
        group.start_soon(here.head)
        await eventually(lambda: len(running()) == 1)
        group.cancel_scope.cancel()
    assert running() == []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


async def test_a_password_opens_and_is_seen_nowhere(tmp_path: Path, programs: Programs) -> None:
    load(tmp_path / "r", many(2))
    (tmp_path / "r/conf/svnserve.conf").write_text("[general]\nanon-access = none\npassword-db = passwd\n")
    (tmp_path / "r/conf/passwd").write_text("[users]\nme = hunter2\n")
    seen: list[bytes] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(entry.read_bytes())
                except OSError:
                    continue

    with svn_server(tmp_path) as server:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            reader = await source(programs, server.url("r"), Secret("hunter2", "me"))
            head = await reader.head()
            for _ in range(30):  # a short process may come and go between two looks
                if any(b"--password-from-stdin" in line for line in list(seen)):
                    break
                head = await reader.head()
        finally:
            stop.set()
            watcher.join()
        assert head.rev == 2
        assert any(b"--password-from-stdin" in line for line in seen)
        assert not any(b"hunter2" in line for line in seen)
        for secret in (Secret("wrong", "me"), None):
            with pytest.raises(SourceFailed) as refusal:
                await (await source(programs, server.url("r"), secret)).head()
            assert refusal.value.trouble is Trouble.AUTH
            assert "wrong" not in str(refusal.value)
    kept = [path for path in (programs.scratch / "svn").rglob("*") if path.is_file() and path.stat().st_size]
    assert kept == []
