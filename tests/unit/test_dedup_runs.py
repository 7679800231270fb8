"""What a run of the dedup domain can be asked for, and which jobs it is made of."""

from typing import Any

import pytest

from actors.dedup.orders import ACTIONS, Step, check, faults, steps


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        ("scan", {"library": "photos"}),
        ("scan", {"library": "a.b_c-9", "hash": True, "algorithm": "sha256", "mode": "duplicates"}),
        ("scan", {"library": "photos", "thumbnails": True, "allow_empty": False}),
        ("hash", {}),
        ("hash", {"library": "photos", "algorithm": "blake3", "mode": "all"}),
        ("rescan-all", {}),
        ("rescan-all", {"hash": True, "mode": "duplicates"}),
        ("thumbnails-for-library", {"library": "photos", "format": "jpeg", "max_dimension": 2048}),
    ],
)
def test_what_suits_an_action(action: str, payload: dict[str, Any]) -> None:
    assert faults(action, payload) == []
    assert check(payload) == []
    assert faults(action, {**payload, "event": {"id": 1}}) == [], "an event's run carries the event"


@pytest.mark.parametrize(
    ("action", "payload", "word"),
    [
        (None, {}, "action"),
        ("", {}, "action"),
        ("delete", {"library": "photos"}, "action"),
        ("scan", {}, "library is missing"),
        ("thumbnails-for-library", {"format": "webp"}, "library is missing"),
        ("scan", {"library": "../etc"}, "library must be"),
        ("scan", {"library": ""}, "library must be"),
        ("scan", {"library": 7}, "library must be"),
        ("scan", {"library": None}, "library must be"),
        ("scan", {"library": "x" * 64}, "library must be"),
        ("scan", {"library": "photos\n"}, "library must be"),
        ("scan", {"library": "photos", "hash": "yes"}, "hash must be true or false"),
        ("scan", {"library": "photos", "hash": 1}, "hash must be true or false"),
        ("scan", {"library": "photos", "format": "webp"}, "does not take format"),
        ("hash", {"algorithm": "md5"}, "algorithm must be one of blake3, sha256"),
        ("hash", {"algorithm": ["blake3"]}, "algorithm must be one of"),
        ("hash", {"mode": "some"}, "mode must be one of"),
        ("rescan-all", {"library": "photos"}, "does not take library"),
        ("thumbnails-for-library", {"library": "p", "format": "gif"}, "format must be one of"),
        ("thumbnails-for-library", {"library": "p", "max_dimension": 15}, "max_dimension must be"),
        ("thumbnails-for-library", {"library": "p", "max_dimension": 2049}, "max_dimension must be"),
        ("thumbnails-for-library", {"library": "p", "max_dimension": True}, "max_dimension must be"),
        ("thumbnails-for-library", {"library": "p", "max_dimension": 16.5}, "max_dimension must be"),
        ("scan", {"library": "photos", "colour": "red"}, "colour is unknown"),
    ],
)
def test_what_does_not_is_named(action: str | None, payload: dict[str, Any], word: str) -> None:
    assert any(word in fault for fault in faults(action, payload))


def test_without_the_action_only_what_no_action_takes_is_refused() -> None:
    assert check({}) == []
    assert "no action takes" in check({"library": "photos", "hash": True, "format": "webp"})[0]
    assert check({"colour": "red"}) == ["colour is unknown"]
    assert check({"algorithm": "md5"})


def test_a_scan_is_hashed_and_thumbnailed_after_it() -> None:
    payload = {"library": "p", "hash": True, "algorithm": "sha256", "mode": "duplicates", "thumbnails": True}
    assert steps("scan", {**payload, "allow_empty": True}, []) == [
        Step("scan", "p", {"allow_empty": True, "hash": True, "algorithm": "sha256", "mode": "duplicates"}),
        Step("hash", "p", {"algorithm": "sha256", "mode": "duplicates"}),
        Step("thumbnail", "p"),
    ]
    assert steps("scan", {"library": "p", "hash": False}, []) == [Step("scan", "p")]


def test_all_libraries_are_scanned_one_by_one_and_hashed_at_once() -> None:
    assert steps("rescan-all", {"hash": True, "mode": "all"}, ["a", "b"]) == [
        Step("scan", "a", {"hash": True, "mode": "all"}),
        Step("scan", "b", {"hash": True, "mode": "all"}),
        Step("hash", None, {"mode": "all"}),
    ]
    assert steps("rescan-all", {"hash": True}, []) == []
    assert steps("hash", {}, ["a"]) == [Step("hash", None)]


def test_every_action_has_its_steps() -> None:
    for action in ACTIONS:
        assert steps(action, {"library": "p"}, ["p"])
