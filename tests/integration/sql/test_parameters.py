"""Whoever asks for work gives arguments for declared parameters, and never what belongs to the definition."""

import json
from collections.abc import Mapping
from typing import Any, Final

import asyncpg
import pytest

from tests.integration.sql.test_enqueue import refusal, runs
from tests.integration.sql.world import World

PROGRAM: Final = {"argv": ["invoice", "--order", {"argument": "order"}]}
PARAMETERS: Final[Mapping[str, Any]] = {
    "order": {"type": "integer", "required": True, "minimum": 1},
    "note": {"type": "text", "max_length": 10},
    "level": {"type": "text", "choices": ["low", "high"], "default": "low"},
    "more": {"type": "any"},
}


async def payload_of(world: World, run: int) -> Any:
    return json.loads((await world.row(run))["payload"])


@pytest.fixture
async def shop(world: World) -> World:
    await world.job("invoice", payload=PROGRAM, parameters=PARAMETERS)
    return world


async def said(world: World, arguments: Any, job: str = "invoice") -> tuple[str | None, str]:
    """The code and the message of a refusal."""
    client = await world.hand("client")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await client.enqueue(job, payload=arguments)
    return caught.value.sqlstate, str(caught.value)


async def test_arguments_join_the_fixed_payload_and_the_defaults(shop: World) -> None:
    client = await shop.hand("client")
    run = (await client.enqueue("invoice", payload={"order": 7, "more": [1]}))["id"]
    assert await payload_of(shop, run) == {**PROGRAM, "order": 7, "more": [1], "level": "low"}


@pytest.mark.parametrize("key", ["argv", "env", "cwd", "env_allow", "success_exit_codes", "max_output_bytes"])
async def test_a_client_never_chooses_the_program(shop: World, key: str) -> None:
    """The attack: `enqueue` with an argv of the caller's ran as the replica."""
    await shop.job("plain", payload={"argv": ["echo"]})
    for job, good in (("invoice", {"order": 7}), ("plain", {})):
        code, message = await said(shop, {**good, key: ["sh", "-c", "id"]}, job)
        assert code == "TN022"
        assert f'has no parameter "{key}"' in message
    client = await shop.hand("client")
    many = "SELECT * FROM supervisor.enqueue_many('plain', $1::text[]::jsonb[], NULL)"
    assert await refusal(client.sql(many, ["{}", json.dumps({key: ["sh"]})])) == "TN022"
    assert await runs(shop) == 0


async def test_every_refusal_of_a_client_has_a_code_of_ours(shop: World) -> None:
    """A refused `emit` showed the failing row of a constraint."""
    client = await shop.hand("client")
    one = "SELECT * FROM supervisor.enqueue($1, '{\"order\": 1}', $2, $3::text::timestamptz, $4)"
    rest = "ARRAY[$2], $3::text::timestamptz, $4)"
    many = f"SELECT * FROM supervisor.enqueue_many($1, ARRAY['{{\"order\": 1}}']::jsonb[], {rest}"
    wrong = (
        ("TN020", (None, None, None, None)),
        ("TN020", ("x" * 5000, None, None, None)),
        ("TN022", ("invoice", "", None, None)),
        ("TN022", ("invoice", "x" * 5000, None, None)),
        ("TN022", ("invoice", "retry:1:1", None, None)),
        ("TN022", ("invoice", None, "infinity", None)),
        ("TN022", ("invoice", None, "-infinity", None)),
    )
    for call in (one, many):
        for code, arguments in wrong:
            assert await refusal(client.sql(call, *arguments)) == code, arguments
    emit = "SELECT * FROM supervisor.emit($1, $2::text::jsonb, $3)"
    for told in (
        (None, "{}", None), ("", "{}", None), ("a b", "{}", None), ("a", "[]", None), ("a", "1", None),
        ("a", json.dumps({"a": "x" * 70_000}), None), ("a", "{}", ""), ("a", "{}", "x" * 201),
    ):  # fmt: skip
        assert await refusal(client.sql(emit, *told)) == "TN022", told
    plain = "SELECT * FROM supervisor.enqueue('invoice', $1::jsonb)"
    for text in ("[]", "1", "null", '"x"'):
        assert await refusal(client.sql(plain, text)) == "TN022"
    assert await client.sql("SELECT * FROM supervisor.run_outcome(NULL)") == []
    assert await runs(shop) == 0


async def test_a_refusal_names_what_the_job_takes(shop: World) -> None:
    code, message = await said(shop, {"order": 7, "colour": "red"})
    assert code == "TN022"
    takes = 'order (integer, required), level (text, by default "low"), more (any), note (text)'
    assert message == f'job invoice has no parameter "colour"; it takes {takes}'


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "needs the argument order"),
        ({"order": "7"}, "order of job invoice must be integer"),
        ({"order": 7.5}, "must be integer"),
        ({"order": None}, "must be integer, not null"),
        ({"order": 0}, "must be at least 1"),
        ({"order": 7, "note": "x" * 11}, "is longer than 10"),
        ({"order": 7, "note": ["x"]}, "must be text"),
        ({"order": 7, "level": "middle"}, "must be one of low, high"),
        ({"order": 7, "event": {}}, "event is reserved"),
        ({"order": 7, "x" * 5000: 1}, "has no parameter"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(shop: World, arguments: Any, told: str) -> None:
    code, message = await said(shop, arguments)
    assert (code, told in message) == ("TN022", True), message
    assert len(message) < 2500
    client = await shop.hand("client")
    many = "SELECT * FROM supervisor.enqueue_many('invoice', $1::text[]::jsonb[], NULL)"
    with pytest.raises(asyncpg.PostgresError, match="run 2 of the call") as caught:
        await client.sql(many, [json.dumps({"order": 1}), json.dumps(arguments)])
    assert caught.value.sqlstate == "TN022"
    assert await runs(shop) == 0


async def test_an_argument_in_argv_is_no_option_unless_the_definition_says_so(world: World) -> None:
    argv = {"argv": ["ls", {"argument": "place"}, {"argument": "depth"}]}
    plain = {"place": {"type": "text"}, "depth": {"type": "number"}, "note": {"type": "text"}}
    await world.job("list", payload=argv, parameters=plain)
    for wrong in ({"place": "--help"}, {"place": "-"}, {"depth": -1}):
        code, message = await said(world, wrong, "list")
        assert (code, 'must not begin with "-"' in message) == ("TN022", True)
    # elsewhere a dash is only a dash
    assert await world.run("list", payload={"place": "a-b", "note": "- milk"})
    free = {**plain, "place": {"type": "text", "leading_dash": True}}
    await world.job("free", payload=argv, parameters=free)
    assert await world.run("free", payload={"place": "--all"})


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"payload": {"argv": [{"argument": "x"}]}, "parameters": {"x": {"type": "text"}}}, "is the program"),
        (
            {"payload": {"argv": ["a", {"argument": "y"}]}, "parameters": {"x": {"type": "text"}}},
            "no parameter declares",
        ),
        ({"payload": {"argv": ["a", {"argument": "y"}]}}, "no parameter declares"),
        ({"payload": {"argv": ["a", {}]}}, "no parameter declares"),
        ({"parameters": {"argv": {"type": "array"}}}, "belongs to the definition alone"),
        (
            {"payload": {"argv": ["a"], "x": 1}, "parameters": {"x": {"type": "integer"}}},
            "the payload fixes it",
        ),
        ({"payload": {"argv": ["a"], "event": {}}}, "event is reserved"),
        ({"parameters": {"x": {"type": "int"}}}, "type must be one of"),
        ({"parameters": {"x": {}}}, "type must be one of"),
        ({"parameters": {"x": "text"}}, "must be an object"),
        ({"parameters": {"x y": {"type": "text"}}}, "letters, digits and _"),
        ({"parameters": {"x": {"type": "text", "needed": True}}}, "knows type, required"),
        ({"parameters": {"x": {"type": "text", "required": "yes"}}}, "true or false"),
        ({"parameters": {"x": {"type": "text", "required": True, "default": "a"}}}, "not both"),
        ({"parameters": {"x": {"type": "text", "default": 1}}}, "default must be text"),
        ({"parameters": {"x": {"type": "text", "choices": []}}}, "choices must be"),
        ({"parameters": {"x": {"type": "text", "choices": ["a", 1]}}}, "choice 1 must be text"),
        ({"parameters": {"x": {"type": "text", "choices": ["a"], "default": "b"}}}, "must be one of a"),
        ({"parameters": {"x": {"type": "text", "minimum": 1}}}, "bound an integer or a number"),
        ({"parameters": {"x": {"type": "text", "max_length": 0}}}, "max_length is a whole number"),
        ({"parameters": {"x": {"type": "text", "in_argv": True}}}, "knows type, required"),
        ({"parameters": {"event": {"type": "text"}}}, "an object without a default"),
        ({"parameters": ["x"]}, "parameters must be an object"),
        ({"parameters": {f"x{n}": {"type": "text"} for n in range(101)}}, "at most 100 parameters"),
        (
            {"parameters": {"x": {"type": "text", "required": True}}, "cron": "@daily"},
            "a schedule gives none",
        ),
        ({"parameters": {"x": {"type": "text", "required": True}}, "event_type": "e"}, "an event gives none"),
        (
            {"parameters": {"event": {"type": "object", "required": True}}, "cron": "@daily"},
            "a schedule gives none",
        ),
    ],
)
async def test_a_definition_that_cannot_be_kept_is_refused_when_it_is_saved(
    world: World, spec: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await world.job("wrong", **{"payload": {"argv": ["a"]}, **spec})
    assert (caught.value.sqlstate, told in str(caught.value)) == ("TN022", True), str(caught.value)
    assert await world.admin.value("SELECT count(*) FROM supervisor.job_definition WHERE name = 'wrong'") == 0


@pytest.mark.parametrize("name", ["a/../../b", "a/..", "a/./b", "a/."])
async def test_a_name_that_a_browser_would_shorten_is_refused(world: World, name: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match=r"no part of a job's name is \. or \.\."):
        await world.job(name)
    await world.job(name.replace("..", "..a").replace("/.", "/.c"))


async def test_a_job_that_needs_its_event_runs_on_events_only(world: World) -> None:
    parameters = {"event": {"type": "object", "required": True}, "rate": {"type": "integer", "default": 3}}
    await world.job("paid", event_type="order.paid", payload={"argv": ["a"]}, parameters=parameters)
    code, message = await said(world, {}, "paid")
    assert (code, message) == ("TN022", "job paid runs on events only: emit one of type order.paid")
    await (await world.hand("client")).sql(
        "SELECT * FROM supervisor.emit('order.paid', '{\"argv\": [\"id\"]}')"
    )
    await world.control.sql("SELECT * FROM supervisor.process_events($1, 10)", world.epoch)
    [row] = await world.admin.sql("SELECT payload FROM supervisor.job_run")
    payload = json.loads(row["payload"])
    assert (payload["argv"], payload["rate"], payload["event"]["payload"]) == (["a"], 3, {"argv": ["id"]})


async def test_a_domain_declares_for_its_jobs_and_the_payload_takes_away_what_it_fixes(world: World) -> None:
    """A bad payload of a domain's job was started three times before it failed."""
    await world.job("photos", domain="dedup", action="scan", payload={"library": "photos"})
    await world.job("any", domain="dedup", action="scan")
    assert (await said(world, {"library": "others"}, "photos"))[0] == "TN022"
    assert "needs the argument library" in (await said(world, {}, "any"))[1]
    assert (
        "must be one of blake3, sha256" in (await said(world, {"library": "a", "algorithm": "md5"}, "any"))[1]
    )
    assert await world.run("photos", payload={"hash": True, "algorithm": "sha256"})
    for spec, told in (
        ({"action": "scan", "payload": {"librari": "a"}}, "unknown key"),
        ({"action": "scan", "payload": {"library": 7}}, "library must be text"),
        ({"action": "scan", "cron": "@daily"}, "library is required, and a schedule gives none"),
        ({"action": "walk"}, "the action must be one of"),
        ({}, "the action must be one of"),
        ({"action": "scan", "parameters": {"colour": {"type": "text"}}}, "dedup scan takes library"),
        ({"action": "scan", "parameters": {"hash": {"type": "text"}}}, "dedup scan takes"),
        ({"action": "scan", "parameters": {"hash": {"type": "boolean"}}}, "dedup scan needs library"),
    ):
        with pytest.raises(asyncpg.PostgresError, match=told):
            await world.job("wrong", domain="dedup", **spec)


async def test_older_definitions_take_what_they_took_and_never_a_program(world: World) -> None:
    await world.job("old", payload={"argv": ["true"]})
    await world.admin.sql("UPDATE supervisor.job_definition SET takes = NULL WHERE name = 'old'")
    assert await world.run("old", payload={"order": 7, "anything": {"a": 1}})
    for key in ("argv", "env", "cwd", "env_allow", "success_exit_codes"):
        code, message = await said(world, {key: ["sh"]}, "old")
        assert (code, f"{key} of job old belongs to its definition" in message) == ("TN022", True)
    # a change of something else leaves it; declared parameters, or another task, end it
    await world.control.sql(
        "SELECT supervisor.save_job('a', 'old', '{\"priority\": 2, \"takes\": {}}', false)"
    )
    assert await world.run("old", payload={"order": 7})
    await world.control.sql("SELECT supervisor.save_job('a', 'old', '{\"parameters\": {}}', false)")
    assert (await said(world, {"order": 7}, "old"))[0] == "TN022"


async def test_operators_save_no_program(world: World) -> None:
    """A token of role operate became admin: it could save a definition that runs a program."""
    save = "SELECT supervisor.save_job('anna', $1, $2::text::jsonb, $3, false)"
    program = json.dumps({"domain": "command", "payload": {"argv": ["id"]}})
    scan = json.dumps({"domain": "dedup", "action": "scan"})
    unknown = json.dumps({"domain": "nowhere"})
    assert await refusal(world.control.sql(save, "new", program, True)) == "TN024"
    assert await refusal(world.control.sql(save, "new", unknown, True)) == "TN024"
    assert await refusal(world.control.sql(save, "work", '{"payload": {"argv": ["id"]}}', False)) == "TN024"
    assert (
        await refusal(world.control.sql(save, "work", '{"priority": 1, "enabled": true}', False)) == "TN024"
    )
    assert await refusal(world.control.sql(save, "work", scan, False)) == "TN024"
    assert await refusal(world.control.sql("SELECT supervisor.remove_job('anna', 'work', false)")) == "TN024"
    await world.control.sql(save, "work", '{"enabled": false}', False)
    await world.control.sql(save, "scan", scan, True)
    assert await refusal(world.control.sql(save, "scan", program, False)) == "TN024"
    await world.control.sql("SELECT supervisor.remove_job('anna', 'scan', false)")


async def test_an_outcome_is_its_client_s_own(world: World) -> None:
    """Every client could read the result and the error of any run."""
    client = await world.hand("client")
    mine = (await client.enqueue())["id"]
    other = await world.run()
    old = await world.run()
    await world.admin.sql("ALTER TABLE supervisor.job_run DISABLE TRIGGER USER")
    await world.admin.sql("UPDATE supervisor.job_run SET enqueued_by = 'shop' WHERE id = $1", other)
    await world.admin.sql("UPDATE supervisor.job_run SET enqueued_by = NULL WHERE id = $1", old)
    await world.admin.sql("ALTER TABLE supervisor.job_run ENABLE TRIGGER USER")
    outcome = "SELECT id FROM supervisor.run_outcome($1)"
    assert await client.value(outcome, mine) == mine
    assert await client.value(outcome, other) is None
    assert await client.value(outcome, old) == old
    assert await world.control.value(outcome, other) == other
