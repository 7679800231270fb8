"""The merge requests of a GitLab project, in the order of their last change.

A page number is no place in this list: a merge request that is changed while the list is read moves to its
end, and all behind it one place up, one of them over the border of a page that was read already. So the list
is not read by page numbers: each page is asked for from the last time seen on, that time included, and what
was seen already is left out. Page numbers serve only within a single millisecond that fills more than a page.

The watermark is the last change that was read, but it stays a minute behind the server's clock: a change
gets its time when it is made and is seen when it is committed. What is seen late is read by the next run.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from actors.scm.gitlab import MAX_PAGES, GitlabClient
from actors.scm.gitlab_answer import (
    BadAnswer,
    instant,
    instant_or_none,
    mapping,
    number,
    read_each,
    stamp,
    text,
)
from actors.scm.records import Batch, Unreadable

__all__ = ["ChangesStart", "MergeRequest", "changed_mrs", "gitlab_mrs", "merge_request", "newest_change"]

PATH: Final = "merge_requests"
STATES: Final = ("opened", "closed", "locked", "merged")
SETTLED_AFTER: Final = timedelta(seconds=60)
# What has a column of its own.
OWN: Final = frozenset({"iid", "state", "web_url", "created_at", "updated_at"})


@dataclass(frozen=True, slots=True)
class MergeRequest:
    iid: int
    author: str
    status: str
    url: str
    created_at: datetime | None
    updated_at: datetime
    meta: Mapping[str, Any]

    def fact(self) -> dict[str, Any]:
        return {
            "iid": self.iid,
            "author": self.author,
            "status": self.status,
            "url": self.url,
            "created_at": self.created_at and self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "meta": self.meta,
        }


def merge_request(answer: Any) -> MergeRequest:
    given = mapping(answer, "a merge request")
    state = given.get("state")
    if state not in STATES:
        raise BadAnswer("a merge request in a state that there is not")
    return MergeRequest(
        iid=number(given.get("iid"), "a merge request with an iid"),
        author=username(given.get("author")),
        status=state,
        url=text(given.get("web_url")),
        created_at=instant_or_none(given.get("created_at")),
        updated_at=instant(given.get("updated_at"), "a merge request with an updated_at"),
        meta={key: value for key, value in given.items() if key not in OWN},
    )


def username(person: Any) -> str:
    """The login name; empty for one who is gone."""
    return text(person.get("username"), 255) if isinstance(person, dict) else ""


@dataclass(frozen=True, slots=True)
class ChangesStart:
    """From which change on, and up to which one; `overlap` of those before it once more.

    A tolerant reader is told of what cannot be read; else that ends the reading.
    """

    after: datetime | None = None
    before: datetime | None = None
    overlap: int = 0
    tolerant: bool = False


@dataclass(frozen=True, slots=True)
class ChangedPage:
    """Merge requests that were not seen before, ascending by last change; `settled` bounds the watermark."""

    records: Sequence[MergeRequest]
    settled: datetime | None
    has_more: bool
    unreadable: Sequence[Unreadable] = ()

    def at(self, moment: datetime) -> datetime:
        return min(moment, self.settled) if self.settled else moment


async def changed_mrs(gitlab: GitlabClient, start: ChangesStart) -> AsyncIterator[ChangedPage]:
    """All that changed since, each change once."""
    after, page, asked, idle = await _overlapped(gitlab, start), 1, 0, 0
    seen: set[tuple[int, datetime]] = set()
    while True:
        answer = await gitlab.page(PATH, _parameters(after, start.before), page)
        told: list[Unreadable] = []
        found = read_each(answer.items, merge_request, "merge request", told if start.tolerant else None)
        _in_order(found, after)
        fresh = [one for one in found if (one.iid, one.updated_at) not in seen]
        settled = answer.date - SETTLED_AFTER if answer.date else None
        yield ChangedPage(fresh, settled, answer.next is not None, told)
        if answer.next is None:
            return
        asked += 1
        idle = 0 if fresh or told else idle + 1
        if idle > 1 or asked >= MAX_PAGES:
            raise BadAnswer(f"{PATH}: pages without an end")
        newest = found[-1].updated_at if found else None
        if newest and (after is None or _cut(newest) > _cut(after)):
            after, page = newest, 1
            seen = {(one.iid, one.updated_at) for one in found if _cut(one.updated_at) == _cut(newest)}
        else:
            page += 1
            seen |= {(one.iid, one.updated_at) for one in found}


async def newest_change(gitlab: GitlabClient) -> datetime | None:
    """When the project's merge requests changed last."""
    answer = await gitlab.page(PATH, {**_parameters(None, None), "sort": "desc", "per_page": 1})
    return merge_request(answer.items[0]).updated_at if answer.items else None


async def gitlab_mrs(
    gitlab: GitlabClient, start: ChangesStart, batch_size: int = 100
) -> AsyncIterator[Batch[MergeRequest]]:
    watermark = start.after
    async for page in changed_mrs(gitlab, start):
        pieces = range(0, max(len(page.records), 1), batch_size)
        for first in pieces:
            chunk = page.records[first : first + batch_size]
            if chunk:
                reached = page.at(chunk[-1].updated_at)
                watermark = max(watermark or reached, reached)
            told = () if first else page.unreadable
            yield Batch(chunk, (), watermark, {}, page.has_more or first != pieces[-1], unreadable=told)


async def _overlapped(gitlab: GitlabClient, start: ChangesStart) -> datetime | None:
    """The change that is `overlap` places before the start."""
    if not start.overlap or start.after is None:
        return start.after
    asked = {**_parameters(None, start.after), "sort": "desc", "per_page": start.overlap}
    answer = await gitlab.page(PATH, asked)
    return min([start.after, *(merge_request(one).updated_at for one in answer.items)])


def _parameters(after: datetime | None, before: datetime | None) -> dict[str, str | int]:
    asked: dict[str, str | int] = {"scope": "all", "state": "all", "order_by": "updated_at", "sort": "asc"}
    if after:
        asked["updated_after"] = stamp(after)
    if before:
        asked["updated_before"] = stamp(before)
    return asked


def _in_order(found: Sequence[MergeRequest], after: datetime | None) -> None:
    """A server that ignores what it is asked for would make us lose what it tells later."""
    times = [one.updated_at for one in found]
    if times != sorted(times) or (after and times and times[0] < _cut(after)):
        raise BadAnswer(f"{PATH}: another order than the one asked for")


def _cut(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
