"""Times that Python's calendar has not: the store reads the nearest, and all others as they are."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from schemas import Query
from supervisor.embedded import Urls
from supervisor.store import Store


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=1)
    yield store
    await store.close()


async def read(store: Store, text: str, kind: str) -> object:
    (row,) = await store.rows(
        Query("test", "a test", f"SELECT {kind} '{text}' AS one, ARRAY[{kind} '{text}'] AS many")
    )
    assert row["many"] == [row["one"]]
    return row["one"]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("200000-01-01", "timestamptz", datetime(9999, 12, 31, tzinfo=UTC)),
        ("294276-12-31", "timestamptz", datetime(9999, 12, 31, tzinfo=UTC)),
        ("4713-01-01 BC", "timestamptz", datetime(1, 1, 2, tzinfo=UTC)),
        ("infinity", "timestamptz", datetime(9999, 12, 31, tzinfo=UTC)),
        ("-infinity", "timestamptz", datetime(1, 1, 2, tzinfo=UTC)),
        ("5874897-12-31", "date", date.max),
        ("4713-01-01 BC", "date", date.min),
        ("infinity", "date", date.max),
        ("-infinity", "date", date.min),
        ("2024-02-29", "date", date(2024, 2, 29)),
        ("1969-12-31 23:59:59.999999+00", "timestamptz", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("2026-03-29 02:30:00.000001+02", "timestamptz", datetime(2026, 3, 29, 0, 30, 0, 1, UTC)),
    ],
)
async def test_every_time_is_read(store: Store, text: str, kind: str, value: object) -> None:
    assert await read(store, text, kind) == value


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=-7))),
        datetime(1, 1, 3, tzinfo=UTC),
        datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
async def test_what_is_sent_comes_back(store: Store, value: datetime) -> None:
    many = Query(
        "test", "a test", "SELECT $1::timestamptz AS one, $2::timestamptz[] AS many, $3::date AS day"
    )
    (row,) = await store.rows(many, value, [value, None], value.date())
    assert (row["one"], row["many"], row["day"]) == (value, [value, None], value.date())
    assert row["one"].utcoffset() == timedelta()


async def test_the_ends_of_the_calendar_are_sent_as_never_and_always(store: Store) -> None:
    sql = "SELECT $1::timestamptz = 'infinity' AND $2::timestamptz = '-infinity' AS both"
    never, always = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    (row,) = await store.rows(Query("test", "a test", sql), never, always)
    assert row["both"]
