"""Commits, merge requests and reviews from a server that answers like GitLab, out of a real repository."""

import hashlib
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from actors.scm.address import AddressRules, parse, resolve
from actors.scm.backoff import Trouble
from actors.scm.diffs import Diff
from actors.scm.gitlab import GitlabClient, GitlabOptions, open_gitlab
from actors.scm.gitlab_answer import BadAnswer
from actors.scm.gitlab_batches import CommitStart, gitlab_commits
from actors.scm.gitlab_commits import CommitOptions, GitlabCommit
from actors.scm.gitlab_mr import ChangesStart, MergeRequest, gitlab_mrs, newest_change
from actors.scm.gitlab_review import Reviewed, ReviewEvent, ReviewStart, gitlab_reviews
from actors.scm.gitlab_wire import pinned_transport
from actors.scm.rate import HostRate
from actors.scm.records import Batch, SourceFailed
from actors.scm.surroundings import Secret
from tests.support import gitlab_server as peer
from tests.support.eventually import eventually
from tests.support.fake_clock import FakeClock
from tests.support.git_server import Story, bare, git, many
from tests.support.gitlab_server import PROJECT, TOKEN, GitlabServer, gitlab_server

RULES = AddressRules(allow_private=True, allow_http=True)
DAY = 1_704_067_200  # 2024-01-01
HOUR = 3600


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitlabServer]:
    with gitlab_server(bare(tmp_path / "project.git")) as running:
        yield running


@asynccontextmanager
async def opened(server: GitlabServer, token: str = TOKEN, **options: Any) -> AsyncIterator[GitlabClient]:
    """A client that never really waits: its clock is a fake one."""
    pinned = await resolve(parse(server.url, "git", RULES), RULES)
    transport = await pinned_transport(pinned, Secret(token), None)
    clock = FakeClock()
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        made = GitlabOptions(**{"rate_limit_rpm": 600, **options})
        yield GitlabClient(pinned, PROJECT, http, made, HostRate(600, clock), clock)


class Reader:
    """Syncs commits again and again, as runs do: keeps what it got, and where it came to."""

    def __init__(self, server: GitlabServer, scratch: Path, per_page: int = 100, **options: Any) -> None:
        self.server = server
        self.per_page = per_page
        self.options = CommitOptions(scratch, **{"diffs": False, **options})
        self.watermark: datetime | None = None
        self.position: dict[str, Any] = {}
        self.found: dict[str, GitlabCommit] = {}
        self.batches: list[Sequence[GitlabCommit]] = []
        self.diffs: dict[str, tuple[Diff, bytes]] = {}

    async def run(self, stop_after: int | None = None, **start: Any) -> list[str]:
        """One run, ended after so many batches; the commits that it brought."""
        begin = CommitStart(**{"watermark": self.watermark, "position": self.position, **start})
        brought: list[str] = []
        async with opened(self.server, per_page=self.per_page) as gitlab:
            batches = gitlab_commits(gitlab, begin, self.options)
            async for number, batch in aenumerate(batches):
                if stop_after is not None and number >= stop_after:
                    batch.close()
                    await batches.aclose()  # type: ignore[attr-defined]
                    break
                self._keep(batch)
                brought += [one.sha for one in batch.records]
        return brought

    def _keep(self, batch: Batch[GitlabCommit]) -> None:
        self.found |= {one.sha: one for one in batch.records}
        self.batches.append(batch.records)
        for diff in batch.diffs:
            self.diffs[diff.of] = (diff, b"" if diff.degraded else diff.read())
        batch.close()
        assert not isinstance(batch.watermark, int)
        self.watermark, self.position = batch.watermark, dict(batch.position)

    @property
    def shas(self) -> set[str]:
        return set(self.found)


async def aenumerate(source: AsyncIterator[Any]) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for one in source:
        yield number, one
        number += 1


def history(server: GitlabServer, ref: str = "main") -> list[str]:
    return git(server.repository, "rev-list", ref).decode().split()


def line(story: Story, branch: str, dates: Sequence[int], **more: Any) -> list[int]:
    tag = f"{branch}-{story.marks}"
    return [
        story.commit(
            branch, date, b"change %d" % date, {f"{tag}-{n}".encode(): b"x\n"}, **more if not n else {}
        )
        for n, date in enumerate(dates)
    ]


# Commits


async def test_a_history_is_read_whole_and_the_second_run_brings_nothing(
    server: GitlabServer, tmp_path: Path
) -> None:
    """R001-024 .. R001-031, R001-120, R001-183: equal to git's own log, over windows of few pages"""
    many(165).tell(server.repository)
    reader = Reader(server, tmp_path, per_page=5, window_pages=3, batch_size=9)
    brought = await reader.run()
    assert sorted(brought) == sorted(history(server))
    assert all(len(batch) <= 9 for batch in reader.batches)
    log = git(server.repository, "log", "--format=%H%x1f%an <%ae>%x1f%cI%x1f%P%x1f%B%x1e", "main").decode()
    for entry in log.split("\x1e")[:-1]:
        sha, author, when, parents, message = entry.strip("\n").split("\x1f")
        record = reader.found[sha]
        assert (record.author_raw, record.message.strip()) == (author, message.strip())
        assert record.moment == datetime.fromisoformat(when)
        assert (list(record.parents), record.is_merge) == (parents.split(), len(parents.split()) > 1)
        added = (
            git(server.repository, "diff", "--numstat", "--no-renames", f"{sha}^1", sha) if parents else b""
        )
        if parents:
            pairs = [row.split(b"\t")[:2] for row in added.splitlines()]
            assert record.additions == sum(int(one[0]) for one in pairs)
            assert record.deletions == sum(int(one[1]) for one in pairs)
    times = [one.moment for batch in reader.batches for one in batch]
    assert times == sorted(times)
    assert reader.watermark == max(times)
    assert await reader.run() == []


async def test_not_more_than_a_window_is_held_and_the_end_is_found_in_a_few_steps(
    server: GitlabServer, tmp_path: Path
) -> None:
    many(165).tell(server.repository)
    reader = Reader(server, tmp_path, per_page=5, window_pages=4, batch_size=100)
    await reader.run()
    assert max(len(batch) for batch in reader.batches) <= 20
    assert reader.shas == set(history(server))
    assert (
        len(server.asked) <= 33 + 4 + 1 + 9
    )  # the pages, the first window twice, the head, and the search for the last


async def test_what_was_merged_late_is_not_lost(server: GitlabServer, tmp_path: Path) -> None:
    """R001-128: a branch older than the watermark arrives with its merge: no "since" would show it."""
    story = Story()
    line(story, "main", [DAY, DAY + 10 * HOUR])
    story.tell(server.repository)
    reader = Reader(server, tmp_path)
    await reader.run()
    # fast-import forgets its marks between two calls: the whole story is told anew
    story = Story()
    trunk = line(story, "main", [DAY, DAY + 10 * HOUR])
    side = line(story, "side", [DAY + HOUR, DAY + 2 * HOUR], parents=[trunk[0]])
    story.commit("main", DAY + 11 * HOUR, b"merge", parents=[trunk[-1], side[-1]])
    story.tell(server.repository)
    brought = await reader.run()
    assert len(brought) == 3
    assert reader.shas == set(history(server))


async def test_a_wrong_clock_hides_nothing(server: GitlabServer, tmp_path: Path) -> None:
    story = Story()
    line(story, "main", [DAY + n * HOUR for n in (5, 6, 1, 7, 0, 8)])
    story.tell(server.repository)
    reader = Reader(server, tmp_path, per_page=2, window_pages=1, batch_size=1)
    await reader.run(stop_after=3)
    await reader.run()
    assert reader.shas == set(history(server))
    assert reader.watermark == datetime.fromtimestamp(DAY + 8 * HOUR, UTC)


@pytest.mark.parametrize("count", [9, 10, 11, 40])
async def test_equal_times_over_borders_of_pages_and_windows(
    server: GitlabServer, tmp_path: Path, count: int
) -> None:
    story = Story()
    line(story, "main", [DAY, *[DAY + 1] * count, DAY + 2])
    story.tell(server.repository)
    reader = Reader(server, tmp_path, per_page=5, window_pages=2, batch_size=3)
    brought = await reader.run()
    assert len(brought) == len(set(brought)) == count + 2
    for batch in reader.batches:
        assert [one.key for one in batch] == sorted(one.key for one in batch)


async def test_without_a_position_the_watermark_itself_is_read_again(
    server: GitlabServer, tmp_path: Path
) -> None:
    """R001-130, R001-183: inclusive, so commits of one second are not lost"""
    story = Story()
    line(story, "main", [DAY, DAY + 1, DAY + 2, DAY + 2, DAY + 2, DAY + 3])
    story.tell(server.repository)
    reader = Reader(server, tmp_path, per_page=2)
    brought = await reader.run(watermark=datetime.fromtimestamp(DAY + 2, UTC), position=None)
    assert len(brought) == 4
    assert reader.watermark == datetime.fromtimestamp(DAY + 3, UTC)
    since = {one.query["since"] for one in server.asked if "since" in one.query}
    assert since == {"2024-01-01T00:00:02.000Z"}


async def test_a_position_of_another_watermark_does_not_count(server: GitlabServer, tmp_path: Path) -> None:
    """R001-183: who sets the cursor back wants to read again."""
    story = Story()
    line(story, "main", [DAY, DAY + 1, DAY + 2])
    story.tell(server.repository)
    reader = Reader(server, tmp_path)
    await reader.run()
    assert len(await reader.run(watermark=datetime.fromtimestamp(DAY + 1, UTC))) == 2
    assert len(await reader.run(watermark=None)) == 3
    for odd in ({"head": "x"}, {"head": 5, "watermark": "x"}, {"low": "a", **reader.position}):
        assert reader.watermark
        assert len(await reader.run(position=odd)) == 1


async def test_a_run_that_was_cut_goes_on_where_it_was(server: GitlabServer, tmp_path: Path) -> None:
    """R001-128, R001-185: killed after every batch, and commits arrive meanwhile"""
    story = many(60)
    story.tell(server.repository)
    reader = Reader(server, tmp_path, per_page=7, window_pages=2, batch_size=5)
    total: list[str] = []
    for round_number in itertools.count():
        brought = await reader.run(stop_after=1)
        if not brought:
            break
        total += brought
        assert round_number < 60, "it does not come forward"
        if round_number == 4:
            many(75).tell(server.repository)  # the same history, and fifteen more
    assert len(total) == len(set(total))
    assert set(total) == set(history(server))


async def test_a_branch_that_was_rewritten(server: GitlabServer, tmp_path: Path) -> None:
    story = Story()
    line(story, "main", [DAY, DAY + 1, DAY + 2])
    story.tell(server.repository)
    reader = Reader(server, tmp_path)
    await reader.run()
    git(server.repository, "update-ref", "-d", "refs/heads/main")
    story = Story()
    line(story, "main", [DAY, DAY + 1])
    story.commit("main", DAY + 5, b"instead", {b"instead": b"y\n"})
    story.tell(server.repository)
    assert len(await reader.run()) == 1
    assert set(history(server)) <= reader.shas
    # and the old head is gone from the server as well
    story = Story()
    line(story, "main", [DAY + 9, DAY + 10])
    git(server.repository, "update-ref", "-d", "refs/heads/main")
    git(server.repository, "prune", "--expire=now")
    git(server.repository, "repack", "-adq")
    git(server.repository, "prune", "--expire=now")
    story.tell(server.repository)
    assert len(await reader.run()) == 2
    assert set(history(server)) <= reader.shas


async def test_an_overlap_is_a_number_of_commits(server: GitlabServer, tmp_path: Path) -> None:
    """R001-127"""
    story = Story()
    line(story, "main", [DAY + n for n in range(9)])
    story.tell(server.repository)
    reader = Reader(server, tmp_path, overlap=3)
    assert len(await reader.run()) == 9
    assert len(await reader.run()) == 3


async def test_a_range_is_read_once_more_and_moves_no_position(server: GitlabServer, tmp_path: Path) -> None:
    """R001-129"""
    story = Story()
    line(story, "main", [DAY + n for n in range(9)])
    story.tell(server.repository)
    reader = Reader(server, tmp_path)
    await reader.run()
    moment = datetime.fromtimestamp
    brought = await reader.run(since=moment(DAY + 2, UTC), until=moment(DAY + 5, UTC))
    assert len(brought) == 4
    assert reader.position == {}


async def test_an_empty_project_and_another_branch(server: GitlabServer, tmp_path: Path) -> None:
    """R001-018"""
    reader = Reader(server, tmp_path)
    assert await reader.run() == []
    story = Story()
    line(story, "main", [DAY])
    line(story, "dev", [DAY + 1, DAY + 2])
    story.tell(server.repository)
    assert len(await reader.run()) == 1
    assert len(await Reader(server, tmp_path, ref="dev").run()) == 2
    with pytest.raises(SourceFailed) as caught:
        await Reader(server, tmp_path, ref="nowhere").run()
    assert caught.value.trouble is Trouble.NOT_FOUND


async def test_stats_are_asked_for_only_where_they_are_wanted(server: GitlabServer, tmp_path: Path) -> None:
    """R001-031, R001-166"""
    big = b"".join(b"%d\n" % n for n in range(1200))
    Story().tell(server.repository)
    story = Story()
    story.commit("main", DAY, b"much", {b"big": big})
    story.tell(server.repository)
    with_stats, without = Reader(server, tmp_path), Reader(server, tmp_path, fetch_stats=False)
    await with_stats.run()
    record = next(iter(with_stats.found.values()))
    assert (record.stats, record.bulk.reason) == (
        {"additions": 1200, "deletions": 0, "total": 1200},
        "large_changeset:1200",
    )
    asked = len(server.asked)
    await without.run()
    record = next(iter(without.found.values()))
    assert (record.stats, record.bulk.is_bulk) == (None, False)
    assert not any("with_stats" in one.query for one in server.asked[asked:])


# Diffs


def checked_out(server: GitlabServer, tmp_path: Path, sha: str, patch: bytes) -> str:
    """The tree that comes of the first parent's by this patch."""
    index = {"GIT_INDEX_FILE": str(tmp_path / "index")}
    parents = git(server.repository, "rev-list", "--parents", "-1", sha).decode().split()[1:]
    git(server.repository, "read-tree", parents[0] if parents else "--empty", env=index)
    if patch:
        git(server.repository, "apply", "--cached", "--whitespace=nowarn", "-", feed=patch, env=index)
    return git(server.repository, "write-tree", env=index).decode().strip()


async def test_the_diffs_make_the_commits(server: GitlabServer, tmp_path: Path) -> None:
    """R001-033, R001-067: what is kept of a commit turns its parent's tree into its own, merges included"""
    story = many(60)
    last = story.marks
    names: dict[bytes, bytes | None] = {
        "ümläut/ein name.txt".encode(): b"one\ntwo\n",
        b'quote"back\\slash\ttab': b"x\ny\n",
        b"no-newline": b"x",
        b"empty": b"",
        b"win": b"a\r\nb\r\n",
    }
    story.commit("main", DAY * 2, b"odd names", names, parents=[last])
    changed = {b"no-newline": b"x\n", b"win": b"a\r\nc\r\n", b"empty": None, b"src/d00/f0.c": None}
    story.commit("main", DAY * 2 + 1, b"changed", changed)
    moved = b'R "no-newline" "moved/here"\nM 100755 inline win\ndata 2\nz\n\n'
    story.commit("main", DAY * 2 + 2, b"moved", extra=moved)
    story.tell(server.repository)
    reader = Reader(server, tmp_path, diffs=True, window_pages=2, per_page=13, batch_size=40)
    await reader.run()
    assert set(reader.diffs) == set(history(server))
    for sha, (diff, content) in reader.diffs.items():
        assert not diff.degraded, diff.reason
        assert hashlib.sha256(content).hexdigest() == diff.sha256
        assert diff.size == len(content)
        tree = git(server.repository, "rev-parse", f"{sha}^{{tree}}").decode().strip()
        assert checked_out(server, tmp_path, sha, content) == tree, content.decode()


async def test_a_diff_is_the_same_bytes_each_time(server: GitlabServer, tmp_path: Path) -> None:
    """R001-033: however many pages it comes in"""
    story = Story()
    story.commit("main", DAY, b"files", {b"%d" % n: b"x\n" for n in range(45)})
    story.tell(server.repository)
    first, second = Reader(server, tmp_path, diffs=True), Reader(server, tmp_path, per_page=7, diffs=True)
    await first.run()
    await second.run()
    assert [one[1] for one in first.diffs.values()] == [one[1] for one in second.diffs.values()]
    assert len(server.paths("/diff")) == 1 + 7


async def test_binary_content_is_named_only(server: GitlabServer, tmp_path: Path) -> None:
    story = Story()
    story.commit("main", DAY, b"picture", {b"p.png": bytes(range(256)) * 10})
    story.tell(server.repository)
    reader = Reader(server, tmp_path, diffs=True)
    await reader.run()
    diff, content = next(iter(reader.diffs.values()))
    assert not diff.degraded
    assert b"Binary files /dev/null and b/p.png differ" in content


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            peer.raw(b'[{"old_path":"a","new_path":"a","diff":"","too_large":true}]'),
            "diff_incomplete:too_large:1",
        ),
        (
            peer.raw(b'[{"old_path":"a","new_path":"a","diff":"","collapsed":true}]'),
            "diff_incomplete:collapsed:1",
        ),
        (peer.raw(b"[]"), "diff_incomplete:lines:1"),
        (peer.raw(b'[{"old_path":5}]'), "diff_unavailable:bad_answer"),
        (peer.raw(b"[" + b" " * (40 << 20) + b"]"), "diff_too_large:10485760"),
        (peer.status(404), "diff_unavailable:repo_not_found"),
        (peer.status(403), "diff_unavailable:permission_denied"),
        (peer.status(500), "diff_unavailable:server_error"),
    ],
    ids=["too large", "collapsed", "cut off", "odd", "huge", "gone", "forbidden", "never answers"],
)
async def test_a_diff_that_cannot_be_had_is_told_of(
    server: GitlabServer, tmp_path: Path, fault: Callable[[peer.Handler], None], reason: str
) -> None:
    story = Story()
    line(story, "main", [DAY, DAY + 1])
    story.tell(server.repository)
    server.fail(fault, on=f"{history(server)[0]}/diff", times=99)
    reader = Reader(server, tmp_path, diffs=True)
    await reader.run()
    newest, oldest = (reader.diffs[sha][0] for sha in history(server))
    assert (newest.degraded, newest.reason, oldest.degraded) == (True, reason, False)
    assert newest.ministat
    fact = reader.found[history(server)[0]].fact(degraded=newest)
    assert fact["meta"]["diff"]["degraded"] == reason


async def test_a_diff_beyond_the_limit_is_not_kept(server: GitlabServer, tmp_path: Path) -> None:
    """R001-161"""
    story = Story()
    story.commit("main", DAY, b"much", {b"%d" % n: b"x" * 99 + b"\n" for n in range(300)})
    story.tell(server.repository)
    for limit, pages in ((20_000, 2), (35_000, 3)):
        asked = len(server.paths("/diff"))
        reader = Reader(server, tmp_path, diffs=True, diff_limit_bytes=limit)
        await reader.run()
        diff, _ = next(iter(reader.diffs.values()))
        assert diff.reason == f"diff_too_large:{limit}"
        assert len(server.paths("/diff")) - asked <= pages


async def test_without_diffs_none_is_asked_for(server: GitlabServer, tmp_path: Path) -> None:
    """R001-160"""
    many(5).tell(server.repository)
    reader = Reader(server, tmp_path, diffs=False)
    await reader.run()
    assert (len(reader.found), reader.diffs, server.paths("/diff")) == (5, {}, [])


async def test_a_server_that_is_down_is_no_reason_to_go_without_diffs(
    server: GitlabServer, tmp_path: Path
) -> None:
    story = Story()
    line(story, "main", [DAY, DAY + 1])
    story.tell(server.repository)
    server.fail(peer.status(502), on="/diff", times=99)
    server.fail(peer.status(502), on="/repository/commits/", times=99)
    with pytest.raises(SourceFailed) as caught:
        await Reader(server, tmp_path, diffs=True).run()
    assert caught.value.trouble is Trouble.SERVER_ERROR


# Merge requests


def moment(number: int) -> str:
    return (
        (datetime.fromtimestamp(DAY, UTC) + timedelta(seconds=number)).isoformat().replace("+00:00", ".000Z")
    )


def with_mrs(server: GitlabServer, times: Sequence[int], **more: Any) -> dict[str, Any]:
    person = {"id": 5, "username": "alice"}
    whole = [
        {
            "iid": n,
            "title": f"mr {n}",
            "author": person,
            "created_at": moment(0),
            "updated_at": moment(time),
            **more,
        }
        for n, time in enumerate(times, start=1)
    ]
    side = server.side | {"merge_requests": whole}
    server.save(side)
    return side


async def read_mrs(
    server: GitlabServer, start: ChangesStart, batch_size: int = 100, per_page: int = 100
) -> tuple[list[MergeRequest], datetime | None]:
    found: list[MergeRequest] = []
    watermark: Any = None
    more = True
    async with opened(server, per_page=per_page) as gitlab:
        async for batch in gitlab_mrs(gitlab, start, batch_size):
            assert more, "a batch behind the last"
            assert len(batch.records) <= batch_size
            found += batch.records
            watermark, more = batch.watermark, batch.has_more
    assert not more
    return found, watermark


async def test_merge_requests_come_in_the_order_of_change(server: GitlabServer) -> None:
    """R001-044, R001-046, R001-120: and the second run has only the last moment once more"""
    with_mrs(server, [9, 3, 5, 5, 5, 1, 7])
    async with opened(server) as gitlab:
        assert await newest_change(gitlab) == datetime.fromtimestamp(DAY + 9, UTC)
    found, watermark = await read_mrs(server, ChangesStart(), batch_size=2, per_page=3)
    assert [one.iid for one in found] == [6, 2, 3, 4, 5, 7, 1]
    assert watermark == datetime.fromtimestamp(DAY + 9, UTC)
    again, _ = await read_mrs(server, ChangesStart(watermark), per_page=3)
    assert [one.iid for one in again] == [1]


async def test_what_git_knows_of_a_merge_request(server: GitlabServer, tmp_path: Path) -> None:
    """R001-046: branches and merge commits of the repository itself"""
    story = Story()
    first = line(story, "main", [DAY])[0]
    side = line(story, "feature", [DAY + 1, DAY + 2], parents=[first])
    line(story, "other", [DAY + 3], parents=[first])
    story.commit("main", DAY + 9, b"Merge branch 'feature'", parents=[first, side[-1]])
    story.tell(server.repository)
    server.save(
        server.side
        | {"merge_requests": [{"iid": 1, "source_branch": "feature"}, {"iid": 2, "source_branch": "other"}]}
    )
    found, _ = await read_mrs(server, ChangesStart())
    assert [(one.iid, one.status) for one in found] == [(2, "opened"), (1, "merged")]
    assert found[1].meta["merge_commit_sha"] == history(server)[0]


@pytest.mark.parametrize("count", [3, 4, 7, 12])
async def test_one_moment_over_several_pages(server: GitlabServer, count: int) -> None:
    with_mrs(server, [1, *[5] * count, 9])
    found, _ = await read_mrs(server, ChangesStart(), per_page=3)
    assert sorted(one.iid for one in found) == list(range(1, count + 3))
    with_mrs(server, [5] * count)
    found, _ = await read_mrs(server, ChangesStart(), per_page=3)
    assert sorted(one.iid for one in found) == list(range(1, count + 1))


async def test_what_changes_while_the_list_is_read_costs_nobody(server: GitlabServer) -> None:
    """R001-128: those that were read move to the end, and the others one page up."""
    side = with_mrs(server, range(1, 31))
    asked = itertools.count(1)

    def change(path: str, _: dict[str, str]) -> None:
        number = next(asked)
        if path.endswith("merge_requests") and number in (2, 3):
            for iid in (1, 2, 3) if number == 2 else (5, 6):
                side["merge_requests"][iid - 1] |= {"updated_at": moment(100 + iid), "title": "changed"}
            server.save(side)

    server.before = change
    found, watermark = await read_mrs(server, ChangesStart(), per_page=5)
    assert {one.iid for one in found} == set(range(1, 31))
    newest = {one.iid: one.meta["title"] for one in found}
    assert [newest[iid] for iid in (1, 2, 3, 5, 6)] == ["changed"] * 5
    assert watermark == datetime.fromtimestamp(DAY + 106, UTC)


async def test_the_watermark_stays_behind_what_may_not_be_seen_yet(server: GitlabServer) -> None:
    """R001-128: a change that is committed late has an earlier time than one that was read already."""
    now = datetime.now(UTC)
    side = with_mrs(server, [1, 2])
    side["merge_requests"][1]["updated_at"] = now.isoformat()
    server.save(side)
    _, watermark = await read_mrs(server, ChangesStart())
    assert watermark
    assert watermark < now
    late = {"iid": 3, "updated_at": (now - timedelta(seconds=5)).isoformat()}
    side["merge_requests"].append(late)
    server.save(side)
    found, _ = await read_mrs(server, ChangesStart(watermark))
    assert {one.iid for one in found} == {2, 3}


async def test_overlap_and_range_of_merge_requests(server: GitlabServer) -> None:
    """R001-127, R001-129"""
    with_mrs(server, range(1, 11))
    at = datetime.fromtimestamp
    found, watermark = await read_mrs(server, ChangesStart(at(DAY + 10, UTC), overlap=4))
    assert [one.iid for one in found] == [7, 8, 9, 10]
    assert watermark == at(DAY + 10, UTC)
    found, _ = await read_mrs(server, ChangesStart(at(DAY + 3, UTC), at(DAY + 6, UTC)))
    assert [one.iid for one in found] == [3, 4, 5, 6]


async def test_a_server_that_ignores_the_order_is_found_out(server: GitlabServer) -> None:
    with_mrs(server, [1])
    body = b'[{"iid":1,"state":"opened","updated_at":"%s"},{"iid":2,"state":"opened","updated_at":"%s"}]'
    server.fail(peer.raw(body % (moment(9).encode(), moment(3).encode())))
    with pytest.raises(BadAnswer, match="order"):
        await read_mrs(server, ChangesStart())
    server.fail(peer.raw(body % (moment(1).encode(), moment(3).encode())))
    with pytest.raises(BadAnswer, match="order"):
        await read_mrs(server, ChangesStart(datetime.fromtimestamp(DAY + 3, UTC)))


# Reviews


def said(
    number: int, at: int, body: str = "hm", user: tuple[int, str] = (6, "bob"), **more: Any
) -> dict[str, Any]:
    author = {"id": user[0], "username": user[1]}
    return {"id": number, "body": body, "system": False, "author": author, "created_at": moment(at), **more}


async def read_reviews(
    server: GitlabServer, start: ReviewStart, batch_size: int = 100, per_page: int = 100
) -> tuple[list[Batch[Reviewed]], list[ReviewEvent]]:
    async with opened(server, per_page=per_page) as gitlab:
        batches = [batch async for batch in gitlab_reviews(gitlab, start, batch_size)]
    assert [one.has_more for one in batches] == [True] * (len(batches) - 1) + [False]
    return batches, [event for batch in batches for record in batch.records for event in record.events]


async def test_comments_approvals_and_requests_for_changes(server: GitlabServer) -> None:
    """R001-047, R001-048, R001-049, R001-050, R001-120"""
    side = with_mrs(server, [50, 60])
    side["notes"] = {
        "1": [
            said(5, 10),
            said(6, 20, "requested changes", system=True),
            said(7, 30, "added 1 commit", system=True),
        ],
        "2": [said(8, 40, "approved this merge request", (5, "eve"), system=True)],
    }
    side["approvals"] = {
        "1": [{"user": {"id": 5, "username": "eve"}, "approved_at": moment(45)}],
        "2": [{"user": {"id": 5, "username": "eve"}}],
    }
    side["reviewers"] = {
        "2": [{"user": {"id": 9, "username": "joe"}, "state": "requested_changes", "created_at": moment(41)}]
    }
    server.save(side)
    batches, events = await read_reviews(server, ReviewStart())
    assert [(one.iid, one.source_event_id, one.event_type, one.author) for one in events] == [
        (1, "note:5", "comment", "bob"),
        (1, "note:6", "request_changes", "bob"),
        (1, "note:7", "comment", "bob"),
        (1, "approval:5", "approve", "eve"),
        (2, "approval:5", "approve", "eve"),
        (2, "note:8", "comment", "eve"),
        (2, f"state:requested_changes:{moment(41)}:9", "request_changes", "joe"),
    ]
    assert events[0].payload == side["notes"]["1"][0]
    assert events[3].payload == side["approvals"]["1"][0]
    assert events[4].ts == events[5].ts
    assert batches[-1].watermark == datetime.fromtimestamp(DAY + 45, UTC)
    watermark, position = batches[-1].watermark, batches[-1].position
    assert isinstance(watermark, datetime)
    again, repeated = await read_reviews(server, ReviewStart(watermark, position))
    assert {one.iid for one in repeated} == {2}
    assert {(one.iid, one.source_event_id) for one in repeated} <= {
        (one.iid, one.source_event_id) for one in events
    }
    assert again[-1].watermark == batches[-1].watermark


async def test_a_later_comment_is_found_with_and_without_the_position(server: GitlabServer) -> None:
    """R001-120, R001-130: the time of the last event alone is early enough"""
    side = with_mrs(server, [50, 60, 70])
    side["notes"] = {"1": [said(1, 10)], "2": [said(2, 20)], "3": [said(3, 30)]}
    server.save(side)
    batches, _ = await read_reviews(server, ReviewStart())
    side["notes"]["1"].append(said(4, 80))
    side["merge_requests"][0]["updated_at"] = moment(80)
    server.save(side)
    watermark, position = batches[-1].watermark, batches[-1].position
    assert not isinstance(watermark, int)
    _, events = await read_reviews(server, ReviewStart(watermark, position))
    assert {one.source_event_id for one in events} == {"note:3", "note:1", "note:4"}
    _, events = await read_reviews(server, ReviewStart(watermark))
    assert "note:4" in {one.source_event_id for one in events}


async def test_many_notes_are_cut_into_batches_and_move_nothing_before_the_last(server: GitlabServer) -> None:
    """R001-185: neither the position nor the watermark"""
    side = with_mrs(server, [50, 60])
    side["notes"] = {"1": [said(n, 0) for n in range(1, 24)], "2": [said(99, 5)]}
    server.save(side)
    batches, events = await read_reviews(server, ReviewStart(), batch_size=10, per_page=4)
    assert [sum(len(one.events) for one in batch.records) for batch in batches] == [10, 10, 4]
    assert [batch.position for batch in batches[:2]] == [{}, {}]
    assert [batch.watermark for batch in batches[:2]] == [None, None]
    assert batches[2].position == {
        "updated_after": "2024-01-01T00:01:00+00:00",
        "watermark": "2024-01-01T00:00:05+00:00",
    }
    assert len({one.source_event_id for one in events}) == 24
    assert all(batch.records[0].mr.iid == 1 for batch in batches)


async def test_merge_requests_without_a_word_are_not_read_again(server: GitlabServer) -> None:
    with_mrs(server, [50, 60, 70])
    batches, events = await read_reviews(server, ReviewStart())
    assert (events, batches[-1].watermark) == ([], None)
    asked = len(server.paths("/notes"))
    await read_reviews(server, ReviewStart(None, batches[-1].position))
    assert len(server.paths("/notes")) == asked + 1
    ranged, _ = await read_reviews(server, ReviewStart(before=datetime.fromtimestamp(DAY + 60, UTC)))
    assert [one.position for one in ranged] == [{}]
    assert {record.mr.iid for one in ranged for record in one.records} == {1, 2}


@pytest.mark.parametrize("status", [403, 404])
async def test_where_there_are_no_approvals_the_notes_are_read(server: GitlabServer, status: int) -> None:
    side = with_mrs(server, [50])
    side["notes"] = {"1": [said(1, 10)]}
    server.save(side)
    server.fail(peer.status(status), on="/approvals", times=9)
    server.fail(peer.status(status), on="/reviewers", times=9)
    _, events = await read_reviews(server, ReviewStart())
    assert [one.source_event_id for one in events] == ["note:1"]
    server.faults.clear()
    server.fail(peer.status(401), on="/approvals", times=9)
    with pytest.raises(SourceFailed, match="auth_error"):
        await read_reviews(server, ReviewStart())


async def test_a_merge_request_that_goes_meanwhile(server: GitlabServer) -> None:
    with_mrs(server, [50, 60])
    server.fail(peer.status(404), on="merge_requests/1/", times=3)
    batches, events = await read_reviews(server, ReviewStart())
    assert [record.mr.iid for batch in batches for record in batch.records] == [1, 2]
    assert events == []


# Troubles


@pytest.mark.parametrize(
    "fault",
    [
        peer.status(429, Retry_After="3"),
        peer.status(429, Retry_After="Mon, 15 Jan 2024 12:00:03 GMT", Date="Mon, 15 Jan 2024 12:00:00 GMT"),
        peer.status(429, RateLimit_Reset="1705320003", Date="Mon, 15 Jan 2024 12:00:00 GMT"),
        peer.status(500),
        peer.status(502),
        peer.status(503, Retry_After="1"),
        peer.truncated(),
        peer.truncated(b""),
    ],
    ids=["429 seconds", "429 date", "429 reset", "500", "502", "503", "truncated", "nothing"],
)
@pytest.mark.parametrize("skip", [0, 3, 5])
async def test_a_trouble_in_the_middle_costs_nothing(
    server: GitlabServer, tmp_path: Path, fault: Callable[[peer.Handler], None], skip: int
) -> None:
    """R001-128"""
    many(30).tell(server.repository)
    server.fail(fault, times=2, skip=skip)
    reader = Reader(server, tmp_path, per_page=5, batch_size=5)
    brought = await reader.run()
    assert sorted(brought) == sorted(history(server))


async def test_a_slow_answer_is_given_up(server: GitlabServer) -> None:
    with_mrs(server, [1])
    release = threading.Event()
    server.fail(peer.slow(release), times=9)
    try:
        async with opened(server, tries=2, request_seconds=0.3) as gitlab:
            with pytest.raises(SourceFailed) as caught:
                await gitlab.get("merge_requests")
    finally:
        release.set()
    assert caught.value.trouble is Trouble.TIMEOUT
    await eventually(lambda: len(server.asked) == 2, what="two requests, also if each was given up early")


async def test_pages_without_an_end_are_cut(server: GitlabServer, tmp_path: Path) -> None:
    """A server whose every page is full, and has a next one"""
    many(3).tell(server.repository)
    with_mrs(server, [1, 1])
    body = json.dumps(server.log("--max-count=2", "main")).encode()

    def endless(handler: peer.Handler) -> None:
        path, _, query = handler.path.partition("?")
        page = int(dict(pair.split("=") for pair in query.split("&")).get("page", "1"))
        handler.say(200, body, {"Link": f'<{server.url}{path}?page={page + 1}>; rel="next"'})

    server.fail(endless, times=10_000)
    with pytest.raises(BadAnswer, match="without an end"):
        await Reader(server, tmp_path).run()
    body = json.dumps(server.listed({"sort": "asc", "order_by": "updated_at"})).encode()
    with pytest.raises(BadAnswer, match="without an end"):
        await read_mrs(server, ChangesStart())
    assert len(server.asked) < 20


async def test_a_list_of_new_commits_without_an_end_is_cut(server: GitlabServer, tmp_path: Path) -> None:
    made = itertools.count(1)
    many(1).tell(server.repository)
    entry = server.log("--max-count=1", "main")[0]

    def endless(handler: peer.Handler) -> None:
        path = handler.path.partition("?")[0]
        whole = [entry | {"id": f"{next(made):040x}"}]
        handler.say(200, whole, {"Link": f'<{server.url}{path}?page={next(made)}>; rel="next"'})

    server.fail(endless, times=100_000)
    with pytest.raises(BadAnswer, match="without an end"):
        await Reader(server, tmp_path).run()
    assert len(server.asked) < 60


async def test_wrong_and_missing_tokens(server: GitlabServer) -> None:
    """R001-188"""
    async with opened(server, token="wrong-token-value") as gitlab:
        with pytest.raises(SourceFailed) as caught:
            await gitlab.get("merge_requests")
    assert caught.value.trouble is Trouble.AUTH
    assert "wrong-token-value" not in str(caught.value)


async def test_a_redirect_is_not_followed_and_the_token_stays_here(
    server: GitlabServer, tmp_path: Path
) -> None:
    with gitlab_server(server.repository, tmp_path / "other.json") as other:
        server.fail(
            peer.status(302, Location=f"{other.url}/api/v4/projects/{PROJECT}/merge_requests"), times=9
        )
        async with opened(server) as gitlab:
            with pytest.raises(SourceFailed) as caught:
                await gitlab.get("merge_requests")
        assert caught.value.trouble is Trouble.BAD_CONFIG
        assert other.asked == []


async def test_the_token_is_sent_as_a_header_and_answers_come_packed(server: GitlabServer) -> None:
    with_mrs(server, range(1, 60))
    server.zipped = True
    found, _ = await read_mrs(server, ChangesStart(), per_page=20)
    assert len(found) == 59
    for one in server.asked:
        assert one.headers["private-token"] == TOKEN
        assert one.headers["host"] == f"127.0.0.1:{server.port}"
        assert TOKEN not in f"{one.path}{one.query}"
        assert "authorization" not in one.headers


async def test_requests_keep_to_the_rate(server: GitlabServer) -> None:
    """R001-168: by the real clock, at a rate that a test can wait for; no request comes too early"""
    with_mrs(server, range(1, 12))
    options = GitlabOptions(per_page=2, rate_limit_rpm=200)
    began = monotonic()
    async with open_gitlab(server.url, PROJECT, Secret(TOKEN), RULES, options) as gitlab:
        found = [one async for batch in gitlab_mrs(gitlab, ChangesStart()) for one in batch.records]
    assert len(found) == 11
    assert len(server.asked) >= 6
    for number, asked in enumerate(server.asked):
        assert asked.at - began > number * 60 / 200 - 0.01


def test_the_server_is_git_itself(server: GitlabServer) -> None:
    """What the tests compare with is what git says, also of dates."""
    many(20).tell(server.repository)
    told = git(server.repository, "log", "--format=%H", "--after=2017-07-14T02:45:00Z", "main")
    found, _ = server.commits({"ref_name": "main", "since": "2017-07-14T02:45:00Z", "per_page": "100"})
    assert [one["id"] for one in found] == told.decode().split()
    assert 0 < len(found) < 20
