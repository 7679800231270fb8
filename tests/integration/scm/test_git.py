"""Plain git repositories over file, http and ssh: read to the end, in the middle, rewritten, hostile."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.scm import git_batches as batches_module
from actors.scm.address import Address, AddressRules, Pinned, parse, resolve
from actors.scm.backoff import Trouble
from actors.scm.git import GitMirror, MirrorBusy
from actors.scm.git_batches import GitStart, git_batches
from actors.scm.git_repository import GitOptions
from actors.scm.process import Programs
from actors.scm.records import Batch, GitCommit, SourceFailed
from actors.scm.surroundings import Secret, SshFiles, git_environment
from supervisor.clock import boottime
from supervisor.descendants import descendants
from tests.support.eventually import eventually
from tests.support.git_server import GitServer, Story, bare, git, git_server, many
from tests.support.ssh_server import ssh_server

RULES = AddressRules(allow_private=True, allow_http=True, allow_file=True)
FACTS = GitOptions(batch_size=10, diffs=False)
DAY = 1_500_000_000


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Programs(scratch, deadline=boottime() + 600, kill_seconds=2.0)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return bare(tmp_path / "served.git")


async def mirror(programs: Programs, url: str | Path, **options: Any) -> GitMirror:
    address = parse(url if isinstance(url, str) else f"file://{url}", "git", RULES)
    return GitMirror(programs, programs.scratch / "mirrors", 7, await resolve(address, RULES), **options)


async def read(
    mirror: GitMirror, start: GitStart | None = None, options: GitOptions = FACTS, most: int | None = None
) -> list[Batch[GitCommit]]:
    found: list[Batch[GitCommit]] = []
    async with mirror.open() as repository, git_batches(repository, start or GitStart(), options) as stream:
        async for batch in stream:
            found.append(batch)
            batch.close()
            if len(found) == most:
                break
    return found


def shas(batches: Sequence[Batch[GitCommit]]) -> list[str]:
    return [commit.sha for batch in batches for commit in batch.records]


def by_date(repository: Path, *revisions: str) -> list[str]:
    """What git itself says there is, by (committed date, name)."""
    lines = git(repository, "log", "--format=%ct %H", *(revisions or ("--branches",))).decode().splitlines()
    return [
        line.split()[1] for line in sorted(lines, key=lambda line: (int(line.split()[0]), line.split()[1]))
    ]


async def test_all_of_it_is_what_git_log_says(programs: Programs, repository: Path) -> None:
    """R001-024 to R001-028, R001-030, R001-031: by (date, name), each once, with git's own facts."""
    many(230).tell(repository)
    batches = await read(await mirror(programs, repository), options=GitOptions(batch_size=50, diffs=False))
    assert shas(batches) == by_date(repository)
    assert [len(batch.records) for batch in batches] == [50, 50, 50, 50, 30]
    assert [batch.has_more for batch in batches] == [True] * 4 + [False]
    for commit in (commit for batch in batches for commit in batch.records):
        form = "%P%x00%an <%ae>%x00%cn%x00%ce%x00%at%x00%ct%x00%B"
        raw = git(repository, "log", "-1", "--format=tformat:" + form, commit.sha)[:-1].decode()
        parents, author, name, email, authored, committed, message = raw.split("\0")
        assert commit.parents == tuple(parents.split())
        assert commit.is_merge is (len(commit.parents) > 1)
        assert (commit.author_raw, commit.committer_name, commit.committer_email) == (author, name, email)
        assert commit.authored_at == datetime.fromtimestamp(int(authored), UTC)
        assert commit.ts == commit.committed_at == datetime.fromtimestamp(int(committed), UTC)
        assert commit.message == message
        numbers = git(repository, "log", "-1", "-m", "--first-parent", "--numstat", "--format=", commit.sha)
        counted = [line.split("\t") for line in numbers.decode().splitlines() if line]
        additions, deletions = sum(int(row[0]) for row in counted), sum(int(row[1]) for row in counted)
        assert commit.stats == {
            "additions": additions,
            "deletions": deletions,
            "total": additions + deletions,
        }
        assert [file.path for file in commit.files] == [row[2] for row in counted]
    assert any(commit.is_merge for batch in batches for commit in batch.records)


async def test_every_diff_is_the_one_git_makes(programs: Programs, repository: Path) -> None:
    """R001-033, R001-067: SHA-256 and size are of git's own bytes; a merge's by its first parent."""
    many(120).tell(repository)
    empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    seen = 0
    here = await mirror(programs, repository)
    async with here.open() as copy, git_batches(copy, GitStart(), GitOptions(batch_size=25)) as stream:
        async for batch in stream:
            assert [diff.of for diff in batch.diffs] == [commit.sha for commit in batch.records]
            for commit, diff in zip(batch.records, batch.diffs, strict=True):
                before = commit.parents[0] if commit.parents else empty
                expected = git(repository, "diff", "--no-renames", "--full-index", before, commit.sha)
                assert diff.read() == expected
                assert (diff.sha256, diff.size) == (hashlib.sha256(expected).hexdigest(), len(expected))
                seen += 1
            batch.close()
    assert seen == 120


async def test_large_diffs_are_told_of_and_those_behind_them_are_read(
    programs: Programs, repository: Path
) -> None:
    """R001-161."""
    story = Story()
    large = b"".join(b"line %d\n" % number for number in range(20_000))
    for number, content in enumerate((b"x\n", large, large + b"more\n", b"y\n", large)):
        story.commit("main", DAY + number, files={b"a": content, b"b": b"%d\n" % number})
    story.tell(repository)
    (batch,) = await read(await mirror(programs, repository), options=GitOptions(diff_limit_bytes=50_000))
    assert [diff.reason for diff in batch.diffs] == [
        None, "diff_too_large:50000", None, "diff_too_large:50000", "diff_too_large:50000"
    ]  # fmt: skip
    told = batch.diffs[1].ministat
    assert told is not None
    assert (told.files, told.additions, told.deletions) == (2, 20_001, 2)
    assert 50_000 < told.bytes < 200_000, "the rest of it is not read"
    assert [commit.bulk.reason for commit in batch.records][:2] == [None, "large_changeset:20003"]


async def test_slow_diffs_are_told_of(programs: Programs, repository: Path) -> None:
    many(4).tell(repository)
    (batch,) = await read(await mirror(programs, repository), options=GitOptions(diff_seconds=0.0))
    assert [diff.reason for diff in batch.diffs] == ["diff_timeout:0"] * 4


async def test_without_stats_and_diffs_there_are_none(programs: Programs, repository: Path) -> None:
    """R001-160, R001-166."""
    many(4).tell(repository)
    options = GitOptions(fetch_stats=False, diffs=False)
    (batch,) = await read(await mirror(programs, repository), options=options)
    assert [commit.stats for commit in batch.records] == [None] * 4
    assert batch.diffs == ()


def stored(position: Mapping[str, Any]) -> Mapping[str, Any]:
    copy: Mapping[str, Any] = json.loads(json.dumps(position))
    return copy


@pytest.mark.parametrize("step", [1, 2, 5])
async def test_stopped_anywhere_it_goes_on_behind(programs: Programs, repository: Path, step: int) -> None:
    """R001-128, C-30: all dates are equal, a run ends after each batch, nothing is lost or repeated."""
    story = Story()
    first = story.commit("main", DAY, files={b"a": b"0"})
    for number in range(6):
        side = story.commit(
            f"side{number}", DAY, b"side %d" % number, {b"s": b"%d" % number}, parents=[first]
        )
        story.commit("main", DAY, b"merge %d" % number, {b"a": b"%d" % number}, parents=[story.marks, side])
    story.tell(repository)
    here = await mirror(programs, repository)
    found: list[str] = []
    start = GitStart()
    batch = None
    while batch is None or batch.has_more:
        batch, *_ = await read(here, start, GitOptions(batch_size=step, diffs=False), most=1)
        found += shas([batch])
        start = GitStart.of(stored(batch.position))
    assert found == by_date(repository)
    assert batch.watermark == datetime.fromtimestamp(DAY, UTC)
    assert shas(await read(here, start)) == []


async def test_commits_older_than_the_watermark_arrive_with_a_merge(
    programs: Programs, repository: Path
) -> None:
    """R001-120: the watermark is the newest date and never goes back; late commits are read all the same."""
    story = Story()
    story.commit("main", DAY, files={b"a": b"0"})
    new = story.commit("main", DAY + 1000, files={b"a": b"1"})
    story.tell(repository)
    here = await mirror(programs, repository)
    (first,) = await read(here)
    old = git(repository, "rev-parse", "main").decode().strip()
    late = Story(marks=new)
    late.lines.append(b"reset refs/heads/side\nfrom %s~1\n\n" % old.encode())
    late.commit("side", DAY + 10, b"late", {b"b": b"0"})
    late.commit("side", DAY + 20, b"later", {b"b": b"1"})
    late.tell(repository)
    git(repository, "update-ref", "refs/heads/copy", "refs/heads/side")
    (second,) = await read(here, GitStart.of(stored(first.position)))
    assert shas([second]) == by_date(repository, "side", "^main")
    assert second.watermark == first.watermark == datetime.fromtimestamp(DAY + 1000, UTC)


async def test_what_comes_in_during_a_walk_is_read_after_it(programs: Programs, repository: Path) -> None:
    """R001-128"""
    story = Story()
    for number in range(20):
        story.commit("main", DAY + 100 + number, files={b"a": b"%d" % number})
    story.tell(repository)
    here = await mirror(programs, repository)
    first, *_ = await read(here, most=1)
    assert first.has_more
    story.commit("other", DAY, b"older than all", {b"b": b"0"})
    story.tell(repository)
    rest = await read(here, GitStart.of(stored(first.position)))
    assert shas(rest) == [*by_date(repository, "main")[10:], *by_date(repository, "other")]
    assert not rest[-1].has_more
    assert all(batch.has_more for batch in rest[:-1])


async def test_a_forced_push_and_a_lost_mirror_lose_nothing(programs: Programs, repository: Path) -> None:
    """R001-128"""
    many(30).tell(repository)
    here = await mirror(programs, repository)
    first, *_ = await read(here, most=1)
    whole = (await read(here))[-1]
    story = Story()
    for number in range(5):
        story.commit("fresh", DAY + number, files={b"z": b"%d" % number})
    story.tell(repository)
    git(repository, "update-ref", "refs/heads/main", "refs/heads/fresh")
    git(repository, "update-ref", "-d", "refs/heads/side")
    kept = await read(here, GitStart.of(stored(first.position)))
    assert set(by_date(repository)) <= set(shas(kept))
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "--quiet", "--prune=now")
    shutil.rmtree(here.path)
    for batch in (first, whole):
        assert shas(await read(here, GitStart.of(stored(batch.position)))) == by_date(repository)


async def test_a_watermark_alone_is_inclusive(programs: Programs, repository: Path) -> None:
    """R001-130, C-22, C-30: a cursor of dates only reads everything from its date on, equal ones included."""
    story = Story()
    for number in range(9):
        story.commit("main", DAY + number // 3, files={b"a": b"%d" % number})
    story.tell(repository)
    here = await mirror(programs, repository)
    mark = datetime.fromtimestamp(DAY + 1, UTC).isoformat()
    assert shas(await read(here, GitStart.of({"watermark": mark}))) == by_date(repository)[3:]
    assert shas(await read(here, GitStart.of({"watermark": mark}, overlap=2))) == by_date(repository)[1:]


async def test_overlap_reads_the_newest_again(programs: Programs, repository: Path) -> None:
    """R001-127, C-32: as many of the most recent commits as it says."""
    many(12).tell(repository)
    here = await mirror(programs, repository)
    batches = await read(here)
    start = GitStart.of(stored(batches[-1].position), overlap=3)
    assert shas(await read(here, start)) == by_date(repository)[-3:]


async def test_a_span_of_dates_is_read_again(programs: Programs, repository: Path) -> None:
    """R001-129: from and to inclusive."""
    story = Story()
    for number in range(10):
        story.commit("main", DAY + number, files={b"a": b"%d" % number})
    story.tell(repository)
    since, until = (datetime.fromtimestamp(DAY + number, UTC) for number in (3, 6))
    assert (
        shas(await read(await mirror(programs, repository), GitStart.backfill(since, until)))
        == by_date(repository)[3:7]
    )


async def test_an_empty_repository_has_nothing_and_then_something(
    programs: Programs, repository: Path
) -> None:
    here = await mirror(programs, repository)
    (batch,) = await read(here)
    assert (batch.records, batch.watermark, batch.has_more) == ((), None, False)
    many(3).tell(repository)
    assert len(shas(await read(here, GitStart.of(stored(batch.position))))) == 3


async def test_odd_names_messages_and_contents(programs: Programs, repository: Path) -> None:
    names = [
        b"new\nline",
        b"tab\there",
        b"caf\xe9",
        b"-rf",
        b"--help",
        b'quo"te',
        b"back\\slash",
        "ü".encode(),
    ]
    story = Story()
    story.commit("main", DAY, b"odd", dict.fromkeys(names, b"x\n"))
    story.commit(
        "main",
        DAY + 1,
        b"j\xf6rg",
        {b"bin": bytes(range(256))},
        author=b"J\xf6rg <j@x>",
        encoding=b"ISO-8859-1",
    )
    story.commit("main", DAY + 2, b"x" * (1 << 21), {b"bin": bytes(range(255, -1, -1))})
    story.commit("main", DAY + 3, b"zero\0inside", {b"-rf": None})
    story.commit("main", DAY + 4, b"", extra=b"M 160000 %s sub\n" % (b"1" * 40))
    story.commit(
        "main",
        DAY + 5,
        b"rules",
        {b".gitattributes": b"* diff=evil filter=evil\n", b".mailmap": b"X <y@z>\n"},
    )
    story.commit("main", DAY + 6, b"nothing")
    story.tell(repository)
    (batch,) = await read(await mirror(programs, repository), options=GitOptions())
    odd, latin, huge, zero, sub, rules, nothing = batch.records
    assert {file.path for file in odd.files} == {name.decode("utf-8", "replace") for name in names}
    assert (latin.author_name, latin.message) == ("Jörg", "jörg")
    assert latin.stats == {"additions": 0, "deletions": 0, "total": 0}
    assert [file.binary for file in latin.files] == [True]
    assert (len(huge.message), huge.cut) == (1 << 20, True)
    assert zero.message == "zero"
    assert [file.action for file in zero.files] == ["D"]
    assert [file.path for file in sub.files] == ["sub"]
    assert len(rules.files) == 2
    assert nothing.files == ()
    assert not any(diff.degraded for diff in batch.diffs)
    assert batch.diffs[-1].size == 0


async def test_replacements_and_hooks_of_the_server_change_nothing(
    programs: Programs, repository: Path
) -> None:
    story = Story()
    for number in range(3):
        story.commit("main", DAY + number, b"true %d" % number, {b"a": b"%d" % number})
    story.tell(repository)
    names = by_date(repository)
    git(repository, "replace", names[2], names[0])
    touched = repository.parent / "touched"
    for hook in ("post-update", "pre-receive", "reference-transaction", "post-checkout", "pre-auto-gc"):
        path = repository / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {touched}\n")
        path.chmod(0o755)
    here = await mirror(programs, repository)
    (batch,) = await read(here)
    assert [commit.message for commit in batch.records] == ["true 0", "true 1", "true 2"]
    assert len(batch.records[2].parents) == 1
    assert not touched.exists()
    git(here.path, "replace", names[2], names[0])
    (here.path / "info").mkdir(exist_ok=True)
    (here.path / "info/grafts").write_text(f"{names[1]}\n")
    (again,) = await read(here)
    assert [commit.message for commit in again.records] == ["true 0", "true 1", "true 2"]
    assert [commit.parents for commit in again.records] == [commit.parents for commit in batch.records]


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% {0}", "--upload-pack=touch {0}", "git://127.0.0.1/x", "fd::3"]
)
async def test_git_itself_refuses_what_gets_past_the_check(
    programs: Programs, repository: Path, tmp_path: Path, url: str
) -> None:
    """Two locks: even an address that nobody checked starts nothing."""
    touched = tmp_path / "touched"

    class Unchecked(Address):
        @property
        def url(self) -> str:
            return url.format(touched)

    pinned = Pinned(Unchecked("git", "https", "", "x", 443, "/r"), ("127.0.0.1",))
    with pytest.raises(SourceFailed):
        async with GitMirror(programs, tmp_path / "mirrors", 1, pinned).open():
            pass
    assert not touched.exists()


@pytest.fixture
def http(tmp_path: Path) -> Iterator[GitServer]:
    (tmp_path / "root").mkdir()
    many(12).tell(bare(tmp_path / "root/r.git"))
    with git_server(tmp_path / "root") as server:
        yield server


async def test_over_http_with_a_password(programs: Programs, http: GitServer) -> None:
    http.password = "hunter2"
    here = await mirror(programs, http.url("r.git"), secret=Secret("hunter2", "me"))
    assert shas(await read(here)) == by_date(http.root / "r.git")
    assert all(given.startswith("Basic ") for _, given in http.requests)
    config = (here.path / "config").read_text()
    assert "hunter2" not in config
    assert "Basic" not in config
    for secret in (Secret("wrong-one", "me"), None):
        with pytest.raises(SourceFailed) as refusal:
            await read(await mirror(programs, http.url("r.git"), secret=secret))
        assert refusal.value.trouble is Trouble.AUTH
        assert "wrong-one" not in str(refusal.value)


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (404, Trouble.NOT_FOUND),
        (403, Trouble.PERMISSION),
        (429, Trouble.RATE_LIMIT),
        (503, Trouble.SERVER_ERROR),
    ],
)
async def test_what_a_server_answers_decides(
    programs: Programs, http: GitServer, status: int, trouble: Trouble
) -> None:
    """R001-188."""
    http.status = status
    with pytest.raises(SourceFailed) as refusal:
        await read(await mirror(programs, http.url("r.git")))
    assert refusal.value.trouble is trouble


async def test_a_redirect_is_not_followed_and_gets_no_secret(
    programs: Programs, http: GitServer, tmp_path: Path
) -> None:
    with git_server(tmp_path / "root") as elsewhere:
        http.redirect = elsewhere.url("")[:-1]
        with pytest.raises(SourceFailed) as refusal:
            await read(await mirror(programs, http.url("r.git"), secret=Secret("hunter2")))
        assert refusal.value.trouble is Trouble.BAD_CONFIG
        assert elsewhere.requests == []


async def test_git_connects_to_the_address_that_was_judged(
    programs: Programs, http: GitServer, tmp_path: Path
) -> None:
    """A name that no resolver knows, with the address we found for it: no second look-up takes place."""
    address = parse(f"http://name.invalid:{http.port}/r.git", "git", RULES)
    here = GitMirror(programs, tmp_path / "mirrors", 1, Pinned(address, ("127.0.0.1",)))
    assert shas(await read(here)) == by_date(http.root / "r.git")


async def test_a_half_made_mirror_and_left_locks_are_cleared(programs: Programs, repository: Path) -> None:
    many(5).tell(repository)
    here = await mirror(programs, repository)
    half = here.path.with_suffix(".new")
    half.mkdir(parents=True)
    (half / "HEAD").write_text("garbage")
    assert len(shas(await read(here))) == 5
    for lock in ("packed-refs.lock", "refs/heads/main.lock", "HEAD.lock", "objects/pack/tmp_pack_x"):
        (here.path / lock).parent.mkdir(parents=True, exist_ok=True)
        (here.path / lock).write_text("")
    story = Story()
    story.commit("other", DAY, files={b"q": b"1"})
    story.commit("main", DAY, files={b"q": b"2"})
    story.tell(repository)
    assert shas(await read(here)) == by_date(repository)
    assert not half.exists()
    assert not (here.path / "objects/pack/tmp_pack_x").exists()


@pytest.mark.parametrize("damage", ["packs", "head", "config", "blob"])
async def test_a_broken_mirror_is_made_anew(programs: Programs, repository: Path, damage: str) -> None:
    many(40).tell(repository)
    here = await mirror(programs, repository)
    assert len(shas(await read(here))) == 40
    if damage == "packs":
        for pack in (here.path / "objects/pack").glob("*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:200] + b"\0" * (pack.stat().st_size - 200))
    elif damage == "blob":  # which a fetch has no reason to look at
        (pack,) = (here.path / "objects/pack").glob("*.pack")
        content = pack.read_bytes()
        shutil.rmtree(pack.parent)
        git(here.path, "unpack-objects", "-q", feed=content)
        lost = git(here.path, "rev-parse", "main:src/d00/f0.c").decode().strip()
        (here.path / "objects" / lost[:2] / lost[2:]).unlink()
    elif damage == "head":
        (here.path / "HEAD").unlink()
    else:
        (here.path / "config").write_text("[core\nnonsense")
    found: list[str] = []
    for _ in range(2):  # what only reading finds out is told once, and is over by the next time
        try:
            found = shas(await read(here))
        except SourceFailed as failure:
            assert not failure.trouble.permanent  # noqa: PT017  the next turn decides
        else:
            break
    assert found == by_date(repository)


async def test_one_at_a_time_works_with_a_mirror(programs: Programs, repository: Path) -> None:
    many(2).tell(repository)
    here = await mirror(programs, repository)
    async with here.open():
        with pytest.raises(MirrorBusy):
            async with (await mirror(programs, repository)).open():
                pass
    async with here.open():
        pass


async def test_a_reader_that_is_cancelled_leaves_no_git_behind(programs: Programs, repository: Path) -> None:
    many(300).tell(repository)
    here = await mirror(programs, repository)
    taken = anyio.Event()

    async def take_one() -> None:
        async with here.open() as copy, git_batches(copy, GitStart(), GitOptions(batch_size=5)) as stream:
            async for batch in stream:
                batch.close()
                taken.set()
                await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(take_one)
        await taken.wait()
        group.cancel_scope.cancel()

    def running() -> bool:
        return any(_name(process.pid) == "git" for process in descendants(os.getpid()))

    await eventually(lambda: not running())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


async def test_slices_side_by_side_come_in_order(
    programs: Programs, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "SLICE", 20)
    many(230).tell(repository)
    for options in (
        GitOptions(batch_size=7, diffs=False),
        GitOptions(batch_size=20, parallelism=1, diffs=False),
    ):
        assert shas(await read(await mirror(programs, repository), options=options)) == by_date(repository)


async def test_over_ssh_the_key_of_the_host_is_checked(
    programs: Programs, repository: Path, tmp_path: Path
) -> None:
    many(5).tell(repository)
    with ssh_server(tmp_path / "ssh") as door:
        url = f"ssh://{door.user}@127.0.0.1:{door.port}{repository}"
        here = await mirror(programs, url, ssh=SshFiles(door.identity, door.known_hosts))
        assert len(shas(await read(here))) == 5
        (tmp_path / "nobody").write_text("")
        with pytest.raises(SourceFailed) as refusal:
            await read(await mirror(programs, url, ssh=SshFiles(door.identity, tmp_path / "nobody")))
        assert refusal.value.trouble is Trouble.AUTH


def test_the_environment_of_git_has_no_way_to_ask() -> None:
    env = git_environment(Path("/x"), None, None, SshFiles())
    assert (env["GIT_TERMINAL_PROMPT"], env["GIT_ASKPASS"]) == ("0", "/bin/false")
