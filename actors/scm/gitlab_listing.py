"""A list of commits that stays as it is while it is read, because its ends are commits and not branches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from actors.scm.gitlab import MAX_PAGES, GitlabClient
from actors.scm.gitlab_answer import BadAnswer, read_each, stamp
from actors.scm.gitlab_commits import CommitOptions, GitlabCommit, commit
from actors.scm.records import Unreadable

__all__ = ["PATH", "Listing", "head_commit", "last_page", "read_window"]

PATH: Final = "repository/commits"


@dataclass(frozen=True, slots=True)
class Listing:
    """The list, and the window of its pages that is read next; `done` of its commits are handed on."""

    head: str
    base: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    per_page: int = 100
    low: int = 0
    high: int = 0
    done: int = 0

    @property
    def parameters(self) -> dict[str, str | int]:
        name = f"{self.base}..{self.head}" if self.base else self.head
        asked: dict[str, str | int] = {"ref_name": name, "per_page": self.per_page}
        if self.since:
            asked["since"] = stamp(self.since)
        if self.until:
            asked["until"] = stamp(self.until)
        return asked

    def as_json(self) -> dict[str, Any]:
        since = stamp(self.since) if self.since else None
        window = {"low": self.low, "high": self.high, "done": self.done, "per_page": self.per_page}
        return {"head": self.head, "base": self.base, "since": since, **window}


async def head_commit(gitlab: GitlabClient, ref: str | None) -> GitlabCommit | None:
    """The newest commit of a branch; None where the project is empty."""
    named = {"ref_name": ref} if ref else {}
    answer = await gitlab.page(PATH, {**named, "per_page": 1})
    return commit(answer.items[0]) if answer.items else None


async def last_page(gitlab: GitlabClient, listing: Listing) -> int:
    """The last page with something on it, from `high` on: doubled until there is nothing, then halved."""
    held, empty = listing.high, listing.high * 2
    while await _has(gitlab, listing, empty):
        held, empty = empty, empty * 2
        if held > MAX_PAGES:
            raise BadAnswer(f"{PATH}: pages without an end")
    while empty - held > 1:
        middle = (held + empty) // 2
        if await _has(gitlab, listing, middle):
            held = middle
        else:
            empty = middle
    return held


async def _has(gitlab: GitlabClient, listing: Listing, page: int) -> bool:
    return bool((await gitlab.page(PATH, listing.parameters, page)).items)


async def read_window(
    gitlab: GitlabClient, listing: Listing, options: CommitOptions, told: list[Unreadable] | None = None
) -> tuple[Sequence[GitlabCommit], bool]:
    """The commits of the window in the order of time, and whether the list ended in it. `told` hears of those
    that cannot be read; without it they end the reading."""
    found: dict[str, GitlabCommit] = {}
    asked = listing.parameters | ({"with_stats": "true"} if options.fetch_stats else {})
    ended = False
    for page in range(listing.low, listing.high + 1):
        answer = await gitlab.page(PATH, asked, page)
        read = read_each(answer.items, partial(commit, bulk_lines=options.bulk_lines), "commit", told)
        if read and all(one.sha in found for one in read):
            raise BadAnswer(f"{PATH}: pages without an end")
        found |= {one.sha: one for one in read}
        ended = answer.next is None
        if ended:
            break
    return sorted(found.values(), key=lambda one: one.key), ended
