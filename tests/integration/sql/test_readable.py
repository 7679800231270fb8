"""What no reader can take is not taken: numbers that are too long, times that no calendar has."""

import pytest

from tests.integration.sql.test_enqueue import refusal, runs
from tests.integration.sql.world import World

ONE = "SELECT * FROM supervisor.enqueue('any', $1::text::jsonb)"
MANY = "SELECT * FROM supervisor.enqueue_many('any', ARRAY['{}', $1::text]::jsonb[])"
EMIT = "SELECT * FROM supervisor.emit('x.y', $1::text::jsonb)"
SAVE = "SELECT * FROM supervisor.save_job('test', 'bad', $1::text::jsonb, true)"
HUGE = ["1e5000", "-1e300", "1e100000", "1.5e-301", '[[{"a": [1, 1e5000]}]]', "[1e300]"]
FINE = ["1e299", "-1.25", "1.5e-299", '"' + "7" * 5000 + '"', '[["' + "0" * 400 + '", 1e299]]', "[1e-300]"]


@pytest.fixture
async def shop(world: World) -> World:
    await world.job(
        "any", parameters={"x": {"type": "any"}, "n": {"type": "number"}, "i": {"type": "integer"}}
    )
    return world


@pytest.mark.parametrize("value", HUGE)
async def test_a_number_without_end_is_refused_wherever_it_stands(shop: World, value: str) -> None:
    client = await shop.hand("client")
    for call in (ONE, MANY, EMIT):
        assert await refusal(client.sql(call, f'{{"x": {value}}}')) == "TN022", call
    if value.strip("-")[0] == "1":
        assert await refusal(client.sql(ONE, f'{{"n": {value}}}')) == "TN022"
        assert await refusal(client.sql(ONE, f'{{"i": {value}}}')) == "TN022"
    for spec in (
        f'"payload": {{"argv": ["x"], "y": {value}}}',
        f'"payload": {{"argv": ["x"]}}, "parameters": {{"x": {{"type": "any", "default": {value}}}}}',
    ):
        assert await refusal(shop.admin.sql(SAVE, f'{{"domain": "command", {spec}}}')) == "TN022"
    assert await runs(shop) == 0


@pytest.mark.parametrize("value", FINE)
async def test_digits_in_a_text_and_numbers_that_fit_are_taken(shop: World, value: str) -> None:
    client = await shop.hand("client")
    for call in (ONE, MANY, EMIT):
        await client.sql(call, f'{{"x": {value}}}')
    assert await runs(shop) == 3


async def test_what_is_too_deep_to_look_into_is_refused_in_words(shop: World) -> None:
    client = await shop.hand("client")
    deep = '{"x": "' + "0" * 400 + '", "n": ' + "[" * 5000 + "]" * 5000 + "}"
    assert await refusal(client.sql(ONE, deep)) == "TN022"


@pytest.mark.parametrize(
    "when", ["200000-01-01", "10000-01-01", "4713-01-01 BC", "0001-01-01", "infinity", "-infinity"]
)
async def test_no_run_is_due_in_a_year_that_no_calendar_has(shop: World, when: str) -> None:
    client = await shop.hand("client")
    one = "SELECT * FROM supervisor.enqueue('any', '{}', NULL, $1::text::timestamptz)"
    many = "SELECT * FROM supervisor.enqueue_many('any', ARRAY['{}']::jsonb[], NULL, $1::text::timestamptz)"
    for call in (one, many):
        assert await refusal(client.sql(call, when)) == "TN022"
    later = "SELECT * FROM dedup.request_checkpoint('test', 'passive', '', $1::text::timestamptz)"
    assert await refusal(shop.control.sql(later, when)) == "TN022"
    assert await runs(shop) == 0


@pytest.mark.parametrize("seconds", [1e12, 1e300, -1.0, 0.0, float("nan"), float("inf")])
async def test_no_token_is_for_longer_than_any_calendar(shop: World, seconds: float) -> None:
    sql = "SELECT * FROM supervisor.create_token('test', 'a', 'view', '$argon2id$x', $1)"
    assert await refusal(shop.control.sql(sql, seconds)) == "TN022"
