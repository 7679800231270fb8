"""What people said about the merge requests of a GitLab project: comments, approvals, requests for changes.

Read of every merge request that changed since: its notes, its approvals and the states of its reviewers.
GitLab has ids for notes only, so ids are namespaced: `note:<id>`, `approval:<user id>` (one standing approval
a person), and `state:requested_changes:<time>:<user id>` for a reviewer who is marked so while no note says
it. Every note is a comment, the system's too, but the one that tells of requested changes.

NOT guaranteed: a note that was deleted stays in the ledger; a note next to one that is deleted while a list
of more than a page is read is found when its merge request changes again. An approval that GitLab does not
date has the time of the system's note about it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from actors.scm.backoff import Trouble
from actors.scm.gitlab import GitlabClient
from actors.scm.gitlab_answer import BadAnswer, instant, instant_or_none, mapping, number, read_each, stamp
from actors.scm.gitlab_mr import ChangesStart, MergeRequest, changed_mrs, username
from actors.scm.records import Batch, SourceFailed, Unreadable

__all__ = ["ReviewEvent", "ReviewStart", "Reviewed", "approvals", "gitlab_reviews", "note", "reviewer_states"]

APPROVED: Final = "approved this merge request"
REQUESTED: Final = "requested changes"
# An edition or a right that is missing; the notes are worth reading without.
ABSENT: Final = frozenset({Trouble.NOT_FOUND, Trouble.PERMISSION})


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    iid: int
    source_event_id: str
    event_type: str
    author: str
    ts: datetime
    payload: Mapping[str, Any]

    def fact(self) -> dict[str, Any]:
        return {
            "iid": self.iid,
            "source_event_id": self.source_event_id,
            "event_type": self.event_type,
            "author": self.author,
            "ts": self.ts.isoformat(),
            "payload": self.payload,
        }


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A merge request with its events, or with some of them where it has more than a batch takes."""

    mr: MergeRequest
    events: Sequence[ReviewEvent]


@dataclass(frozen=True, slots=True)
class ReviewStart:
    """The watermark is the time of the last event; the position is the last change of a merge request.

    With `before` it is a range to be read once more, which moves no position.
    """

    watermark: datetime | None = None
    position: Mapping[str, Any] | None = None
    before: datetime | None = None
    overlap: int = 0
    tolerant: bool = False

    @property
    def changes(self) -> ChangesStart:
        """No event is later than the change it made, so the watermark alone is early enough."""
        stored = self.position or {}
        fits = instant_or_none(stored.get("watermark")) == self.watermark
        after = instant_or_none(stored.get("updated_after")) if fits else None
        return ChangesStart(after or self.watermark, self.before, self.overlap, self.tolerant)


def note(answer: Any, iid: int) -> ReviewEvent:
    given = mapping(answer, "a note")
    said = given.get("body")
    requested = given.get("system") is True and isinstance(said, str) and said.strip().lower() == REQUESTED
    return ReviewEvent(
        iid=iid,
        source_event_id=f"note:{number(given.get('id'), 'a note with an id')}",
        event_type="request_changes" if requested else "comment",
        author=username(given.get("author")),
        ts=instant(given.get("created_at"), "a note with a created_at"),
        payload=given,
    )


def approvals(answer: Any, mr: MergeRequest, notes: Sequence[ReviewEvent]) -> list[ReviewEvent]:
    given = mapping(answer, "the approvals")
    people = given.get("approved_by")
    if not isinstance(people, list):
        raise BadAnswer("approvals without approved_by")
    told = {one.author: one.ts for one in notes if _says(one, APPROVED)}
    found = []
    for person in people:
        one = mapping(person, "an approval")
        user = mapping(one.get("user"), "an approval with a user")
        name = username(user)
        ts = instant_or_none(one.get("approved_at")) or told.get(name) or mr.updated_at
        key = f"approval:{number(user.get('id'), 'an approval with a user id')}"
        found.append(ReviewEvent(mr.iid, key, "approve", name, ts, one))
    return found


def reviewer_states(answer: Any, mr: MergeRequest, notes: Sequence[ReviewEvent]) -> list[ReviewEvent]:
    """Those who ask for changes and of whom no note tells it."""
    told = {one.author for one in notes if one.event_type == "request_changes"}
    found = []
    for person in answer if isinstance(answer, list) else []:
        one = mapping(person, "a reviewer")
        user = one.get("user")
        name = username(user)
        if one.get("state") != "requested_changes" or name in told or not isinstance(user, dict):
            continue
        ts = instant_or_none(one.get("created_at")) or mr.updated_at
        key = f"state:requested_changes:{stamp(ts)}:{number(user.get('id'), 'a reviewer with an id')}"
        found.append(ReviewEvent(mr.iid, key, "request_changes", name, ts, one))
    return found


def _says(event: ReviewEvent, what: str) -> bool:
    said = event.payload.get("body")
    return event.payload.get("system") is True and isinstance(said, str) and said.strip().lower() == what


async def events_of(
    gitlab: GitlabClient, mr: MergeRequest, told: list[Unreadable] | None = None
) -> list[ReviewEvent]:
    """Everything about one merge request, in the order of time. One that is gone meanwhile has nothing."""
    place = f"merge_requests/{mr.iid}"
    found: dict[str, ReviewEvent] = {}
    try:
        async for page in gitlab.pages(f"{place}/notes", {"order_by": "created_at", "sort": "asc"}):
            read = read_each(page, partial(note, iid=mr.iid), f"note of merge request {mr.iid}:", told)
            found |= {one.source_event_id: one for one in read}
    except SourceFailed as failure:
        if failure.trouble is not Trouble.NOT_FOUND:
            raise
    notes = list(found.values())
    for name, read_events in (("approvals", approvals), ("reviewers", reviewer_states)):
        answer = await _if_there(gitlab, f"{place}/{name}")
        answers = [] if answer is None else [answer]
        what = f"{name} of merge request {mr.iid}:"
        for events in read_each(answers, partial(read_events, mr=mr, notes=notes), what, told):
            found |= {one.source_event_id: one for one in events}
    return sorted(found.values(), key=lambda one: (one.ts, one.source_event_id))


async def _if_there(gitlab: GitlabClient, path: str) -> Any:
    try:
        return (await gitlab.get(path)).value
    except SourceFailed as failure:
        if failure.trouble in ABSENT:
            return None
        raise


async def gitlab_reviews(
    gitlab: GitlabClient, start: ReviewStart, batch_size: int = 100
) -> AsyncIterator[Batch[Reviewed]]:
    """Batches of about `batch_size` events. A position is behind merge requests that are read completely."""
    reading = _Reading(start)
    async for page in changed_mrs(gitlab, start.changes):
        reading.unreadable += page.unreadable
        for mr in page.records:
            events = await events_of(gitlab, mr, reading.unreadable if start.tolerant else None)
            while len(events) > batch_size:
                reading.held.append(Reviewed(mr, events[:batch_size]))
                events = events[batch_size:]
                yield reading.batch(has_more=True)
            reading.held.append(Reviewed(mr, events))
            reading.passed(page.at(mr.updated_at), [one.ts for one in events])
            if reading.size >= batch_size:
                yield reading.batch(has_more=True)
    yield reading.batch(has_more=False)


class _Reading:
    """What is held for the next batch, and how far the whole ones reach."""

    def __init__(self, start: ReviewStart) -> None:
        self.held: list[Reviewed] = []
        self.unreadable: list[Unreadable] = []
        self._watermark = start.watermark
        self._after = start.changes.after
        self._is_range = start.before is not None

    @property
    def size(self) -> int:
        return sum(len(one.events) or 1 for one in self.held)

    def passed(self, change: datetime, events: Sequence[datetime]) -> None:
        self._after = max(self._after or change, change)
        reached = min(max(events), change) if events else None
        if reached:
            self._watermark = max(self._watermark or reached, reached)

    def batch(self, *, has_more: bool) -> Batch[Reviewed]:
        records, self.held = tuple(self.held), []
        told = tuple(self.unreadable)
        self.unreadable.clear()
        position: dict[str, Any] = {}
        if self._after and not self._is_range:
            watermark = self._watermark and self._watermark.isoformat()
            position = {"updated_after": self._after.isoformat(), "watermark": watermark}
        return Batch(records, (), self._watermark, position, has_more, unreadable=told)
