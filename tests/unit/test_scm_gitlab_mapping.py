"""What GitLab's answers mean: commits, merge requests, notes, approvals. Pure."""

from datetime import UTC, datetime
from typing import Any

import pytest

from actors.scm.gitlab_answer import BadAnswer
from actors.scm.gitlab_commits import commit
from actors.scm.gitlab_mr import MergeRequest, merge_request
from actors.scm.gitlab_review import approvals, note, reviewer_states

SHA = "a" * 40
OTHER = "b" * 40
COMMIT = {
    "id": SHA,
    "parent_ids": [OTHER],
    "title": "A title",
    "message": "A title\n\nand a body\n",
    "author_name": "Alice",
    "author_email": "alice@example.org",
    "authored_date": "2024-01-14T08:00:00.000+02:00",
    "committer_name": "Bob",
    "committer_email": "bob@example.org",
    "committed_date": "2024-01-15T12:30:00.000+08:00",
    "web_url": "https://gitlab.example.org/g/p/-/commit/aaaa",
    "stats": {"additions": 3, "deletions": 1, "total": 4},
}
MR: dict[str, Any] = {
    "id": 99,
    "iid": 42,
    "title": "Make it so",
    "description": "Why",
    "labels": ["bug"],
    "state": "opened",
    "web_url": "https://gitlab.example.org/g/p/-/merge_requests/42",
    "author": {"id": 5, "username": "alice"},
    "created_at": "2024-01-14T08:00:00.000Z",
    "updated_at": "2024-01-15T08:00:00.123Z",
}
NOTE: dict[str, Any] = {
    "id": 17,
    "body": "Looks good",
    "system": False,
    "noteable_type": "MergeRequest",
    "author": {"id": 6, "username": "bob"},
    "created_at": "2024-01-15T09:00:00.000Z",
}


def mr(**more: Any) -> MergeRequest:
    return merge_request(MR | more)


def system(number: int, body: str, user: str = "bob") -> dict[str, Any]:
    return NOTE | {"id": number, "system": True, "body": body, "author": {"id": 6, "username": user}}


def test_a_commit() -> None:
    """R001-024, R001-025, R001-026, R001-027, R001-030, R001-031"""
    found = commit(COMMIT)
    assert found.author_raw == "Alice <alice@example.org>"
    assert found.fact() == {
        "sha": SHA,
        "author_name": "Alice",
        "author_email": "alice@example.org",
        "ts": "2024-01-15T04:30:00+00:00",
        "message": "A title\n\nand a body\n",
        "is_bulk": False,
        "bulk_reason": None,
        "meta": {
            "committer_name": "Bob",
            "committer_email": "bob@example.org",
            "parent_ids": [OTHER],
            "web_url": "https://gitlab.example.org/g/p/-/commit/aaaa",
            "stats": {"additions": 3, "deletions": 1, "total": 4},
        },
        "patch": None,
    }


def test_without_a_time_of_committing_it_is_that_of_the_author() -> None:
    """R001-026"""
    for absent in (None, "no date", 17, ""):
        assert commit(COMMIT | {"committed_date": absent}).fact()["ts"] == "2024-01-14T06:00:00+00:00"


def test_a_commit_without_any_time_stands_at_the_beginning_of_time() -> None:
    dateless = commit(COMMIT | {"committed_date": "x", "authored_date": None})
    assert dateless.fact()["ts"] == "1970-01-01T00:00:00+00:00"


def test_a_merge_has_more_than_one_parent() -> None:
    """R001-028"""
    assert not commit(COMMIT).is_merge
    assert not commit(COMMIT | {"parent_ids": []}).is_merge
    assert commit(COMMIT | {"parent_ids": [OTHER, SHA]}).is_merge


@pytest.mark.parametrize(
    ("additions", "deletions", "reason"),
    [(1000, 0, None), (600, 401, "large_changeset:1001"), (1500, 0, "large_changeset:1500")],
)
def test_bulk_is_more_than_a_thousand_lines(additions: int, deletions: int, reason: str | None) -> None:
    """R001-029"""
    fact = commit(COMMIT | {"stats": {"additions": additions, "deletions": deletions}}).fact()
    assert (fact["is_bulk"], fact["bulk_reason"]) == (reason is not None, reason)


def test_without_stats_there_is_no_bulk_and_no_stats() -> None:
    """R001-166"""
    for absent in (None, {}, {"additions": -1, "deletions": 0}, {"additions": "5", "deletions": 5}, [1]):
        fact = commit(COMMIT | {"stats": absent}).fact()
        assert not fact["is_bulk"]
        assert "stats" not in fact["meta"]


@pytest.mark.parametrize(
    "field", ["title", "author_name", "author_email", "committer_name", "web_url", "stats"]
)
@pytest.mark.parametrize("value", [None, 17, ["x"], {"x": 1}])
def test_what_is_not_needed_may_be_absent_or_odd(field: str, value: Any) -> None:
    commit(COMMIT | {field: value}).fact()
    commit({key: one for key, one in COMMIT.items() if key != field}).fact()


@pytest.mark.parametrize(
    "odd",
    [
        {"id": None},
        {"id": "A" * 40},
        {"id": "a" * 39},
        {"id": "../../etc/passwd" + "a" * 24},
        {"id": 5},
        {"parent_ids": None},
        {"parent_ids": "b" * 40},
        {"parent_ids": ["--upload-pack=x"]},
    ],
)
def test_what_is_needed_is_what_it_should_be(odd: dict[str, Any]) -> None:
    """R001-024"""
    with pytest.raises(BadAnswer) as refusal:
        commit(COMMIT | odd)
    assert "passwd" not in str(refusal.value)


@pytest.mark.parametrize("answer", [None, [], "x", 5, [COMMIT]])
def test_something_else_than_an_object_is_refused(answer: Any) -> None:
    for mapping in (commit, merge_request, lambda one: note(one, 1), lambda one: approvals(one, mr(), [])):
        with pytest.raises(BadAnswer):
            mapping(answer)


def test_a_merge_request() -> None:
    """R001-044, R001-045, R001-046"""
    assert mr().fact() == {
        "iid": 42,
        "author": "alice",
        "status": "opened",
        "url": "https://gitlab.example.org/g/p/-/merge_requests/42",
        "created_at": "2024-01-14T08:00:00+00:00",
        "updated_at": "2024-01-15T08:00:00.123000+00:00",
        "meta": {
            "id": 99,
            "title": "Make it so",
            "description": "Why",
            "labels": ["bug"],
            "author": {"id": 5, "username": "alice"},
        },
    }


@pytest.mark.parametrize("state", ["opened", "closed", "locked", "merged"])
def test_the_states_that_there_are(state: str) -> None:
    """R001-046 (locked is one too)"""
    assert mr(state=state).status == state


@pytest.mark.parametrize(
    "odd",
    [
        *({"state": one} for one in ("reopened", None, ["opened"])),
        *({"iid": one} for one in (0, "42", True, None)),
        *({"updated_at": one} for one in (None, "yesterday", 0)),
    ],
)
def test_a_merge_request_that_is_none(odd: dict[str, Any]) -> None:
    """R001-046"""
    with pytest.raises(BadAnswer):
        mr(**odd)


def test_an_author_who_is_gone() -> None:
    """R001-045"""
    for absent in (None, {}, {"username": None}, "alice", {"username": 7}):
        assert mr(author=absent).author == ""


def test_a_note_is_a_comment() -> None:
    """R001-047, R001-048, R001-049: with a namespaced id and the whole answer"""
    assert note(NOTE, 42).fact() == {
        "iid": 42,
        "source_event_id": "note:17",
        "event_type": "comment",
        "author": "bob",
        "ts": "2024-01-15T09:00:00+00:00",
        "payload": NOTE,
    }


@pytest.mark.parametrize(
    ("is_system", "body", "kind"),
    [
        (True, "requested changes", "request_changes"),
        (False, "requested changes", "comment"),
        (True, "added 1 commit", "comment"),
        (True, "approved this merge request", "comment"),
        (True, None, "comment"),
    ],
)
def test_changes_are_requested_by_a_note_of_the_system(is_system: bool, body: str | None, kind: str) -> None:
    """R001-049"""
    assert note(NOTE | {"system": is_system, "body": body}, 42).event_type == kind


def test_an_approval_has_the_id_of_its_user() -> None:
    """R001-047, R001-049: a note and an approval with one number are two events"""
    given = {
        "approved_by": [{"user": {"id": 17, "username": "carol"}, "approved_at": "2024-01-16T00:00:00Z"}]
    }
    event = approvals(given, mr(), [])[0]
    assert event.source_event_id == "approval:17"
    assert (event.event_type, event.author) == ("approve", "carol")
    assert event.ts == datetime(2024, 1, 16, tzinfo=UTC)
    assert event.payload == given["approved_by"][0]


def test_an_approval_without_a_time_has_that_of_its_note() -> None:
    given = {"approved_by": [{"user": {"id": 6, "username": "bob"}}]}
    told = [note(system(3, "approved this merge request"), 42)]
    assert approvals(given, mr(), told)[0].ts == told[0].ts
    assert approvals(given, mr(), [])[0].ts == mr().updated_at
    forged = [note(NOTE | {"body": "approved this merge request"}, 42)]
    assert approvals(given, mr(), forged)[0].ts == mr().updated_at


@pytest.mark.parametrize(
    "answer",
    [{}, {"approved_by": None}, {"approved_by": [None]}, {"approved_by": [{"user": {"username": "x"}}]}],
)
def test_approvals_that_are_none(answer: Any) -> None:
    with pytest.raises(BadAnswer):
        approvals(answer, mr(), [])


def test_a_reviewer_marked_as_asking_for_changes() -> None:
    """R001-047, R001-049: where no note says so"""
    at = "2024-01-15T10:00:00.000Z"
    people = [
        {"user": {"id": 6, "username": "bob"}, "state": "requested_changes", "created_at": at},
        {"user": {"id": 7, "username": "eve"}, "state": "requested_changes", "created_at": at},
        {"user": {"id": 8, "username": "joe"}, "state": "unreviewed", "created_at": at},
    ]
    told = [note(system(3, "requested changes", "bob"), 42)]
    found = reviewer_states(people, mr(), told)
    assert [one.source_event_id for one in found] == [f"state:requested_changes:{at}:7"]
    assert len({one.source_event_id for one in reviewer_states(people, mr(), [])}) == 2
    assert reviewer_states(None, mr(), []) == []
