"""What a command's payload may say, and what becomes of a command's end."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from actors import ROSTER
from actors.command import ACTOR, check_payload
from actors.command.output import Output
from actors.command.payload import (
    ARGUMENTS_BYTES,
    MAX_OUTPUT_BYTES,
    Order,
    check_env_allow,
    environment,
    inherited,
)
from actors.command.verdict import verdict
from actors.scm.surroundings import may_be_token
from supervisor import Claim, Done, Retry
from supervisor.config import load_settings
from supervisor.errors import BadSettings
from supervisor.isolate import Ended
from supervisor.own_variables import HARMLESS_VARIABLES

FILE = Path("/f")
CLAIM = Claim(7, 5, 2, 11, UUID(int=1), "command", None, {}, None)


def test_the_roster_names_the_command_actor() -> None:
    assert ACTOR in ROSTER
    assert ACTOR.domain == "command"
    assert ACTOR.check is check_payload


@pytest.mark.parametrize(
    "payload",
    [
        {"argv": ["true"]},
        {"argv": ["sh", "-c", "", "ä\n"], "env": {"A": ""}, "env_allow": [], "cwd": "/"},
        {"argv": ["x"], "max_output_bytes": 0, "success_exit_codes": [0, 255]},
        {"argv": ["x"], "max_output_bytes": MAX_OUTPUT_BYTES, "env": None, "cwd": None},
    ],
)
def test_a_good_payload_has_no_complaints(payload: dict[str, Any]) -> None:
    assert check_payload(payload) == []
    assert Order.of(payload).argv == tuple(payload["argv"])


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({}, "argv is missing"),
        ({"argv": None}, "argv is missing"),
        ({"argv": []}, "at least one"),
        ({"argv": "sleep 1"}, "list"),
        ({"argv": ["a", 1]}, "strings"),
        ({"argv": ["a", {"argument": 1}]}, "strings"),
        ({"argv": ["a", {"argument": "x", "more": 1}]}, "strings"),
        ({"argv": [{"argument": "x"}]}, "name a program"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": [""]}, "empty string"),
        ({"argv": ["a"], "shell": True}, "unknown key 'shell'"),
        ({"argv": ["a"], "env": ["A=1"]}, "env must be an object"),
        ({"argv": ["a"], "env": {"A": 1}}, "value of 'A'"),
        ({"argv": ["a"], "env": {"A=B": "1"}}, "no name of a variable"),
        ({"argv": ["a"], "env": {"": "1"}}, "no name of a variable"),
        ({"argv": ["a"], "env": {"A": "\0"}}, "NUL"),
        ({"argv": ["a"], "env": {"TENURE_EPOCH": "9"}}, "reserved"),
        ({"argv": ["a"], "env_allow": "PATH"}, "env_allow must be a list"),
        ({"argv": ["a"], "env_allow": ["TENURE_DATABASE_URL"]}, "secrets of the replica"),
        ({"argv": ["a"], "env_allow": [3]}, "no name of a variable"),
        ({"argv": ["a"], "cwd": "here"}, "absolute"),
        ({"argv": ["a"], "cwd": 3}, "absolute"),
        ({"argv": ["a"], "max_output_bytes": -1}, "max_output_bytes"),
        ({"argv": ["a"], "max_output_bytes": MAX_OUTPUT_BYTES + 1}, "max_output_bytes"),
        ({"argv": ["a"], "max_output_bytes": True}, "max_output_bytes"),
        ({"argv": ["a"], "max_output_bytes": 1.5}, "max_output_bytes"),
        ({"argv": ["a"], "success_exit_codes": []}, "success_exit_codes"),
        ({"argv": ["a"], "success_exit_codes": [256]}, "success_exit_codes"),
        ({"argv": ["a"], "success_exit_codes": "0"}, "success_exit_codes"),
    ],
)
def test_a_bad_payload_is_told_what_is_wrong(payload: dict[str, Any], complaint: str) -> None:
    (told,) = check_payload(payload)
    assert complaint in told


def test_all_complaints_come_at_once() -> None:
    assert len(check_payload({"cwd": "x", "nope": 1})) == 3


def test_the_environment_is_an_allow_list() -> None:
    replica = {"PATH": "/bin", "HOME": "/h", "PGPASSWORD": "s", "TENURE_DATABASE_URL": "s", "AWS_KEY": "s"}
    order = Order.of({"argv": ["a"], "env": {"MINE": "1"}})
    token = {
        "TENURE_ARGUMENTS": "{}",
        "TENURE_ARGUMENTS_FILE": "/f",
        "TENURE_RUN_ID": "7",
        "TENURE_ATTEMPT": "2",
        "TENURE_EPOCH": "11",
        "TENURE_CLAIM": str(UUID(int=1)),
    }
    given = inherited(order, HARMLESS_VARIABLES, replica)
    assert environment(order, CLAIM, FILE, given) == {"PATH": "/bin", "HOME": "/h", "MINE": "1", **token}


def test_the_operator_of_the_replica_says_what_may_pass() -> None:
    replica = {"PATH": "/bin", "HOME": "/h", "PROXY": "p", "AWS_KEY": "s"}
    permitted = ("PATH", "PROXY", "ABSENT")
    assert inherited(Order.of({"argv": ["a"]}), permitted, replica) == {"PATH": "/bin", "PROXY": "p"}
    narrow = Order.of({"argv": ["a"], "env_allow": ["PROXY", "ABSENT"]})
    assert inherited(narrow, permitted, replica) == {"PROXY": "p"}
    assert check_env_allow(narrow, permitted) is None
    greedy = Order.of({"argv": ["a"], "env_allow": ["PROXY", "HOME", "AWS_KEY"]})
    assert inherited(greedy, permitted, replica) == {"PROXY": "p"}
    refusal = check_env_allow(greedy, permitted)
    assert refusal is not None
    assert refusal.startswith("env_allow names AWS_KEY, HOME, which TENURE_COMMAND_ENV of this replica")


@pytest.mark.parametrize(
    "name", ["TENURE_SCM_TOKEN", "pgpassword", "AWS_KEY", "ENGRAM_S3_SECRET_KEY", "REDIS_URL"]
)
def test_no_operator_can_pass_on_a_secret_of_the_replica(name: str) -> None:
    with pytest.raises(BadSettings, match=f"TENURE_COMMAND_ENV names {name}"):
        load_settings(command_env=f"PATH,{name}")
    assert "secrets of the replica" in "; ".join(check_payload({"argv": ["a"], "env_allow": [name]}))
    assert may_be_token(name) is name.startswith("TENURE_SCM_")


def test_arguments_take_the_places_that_argv_marks() -> None:
    marks = [{"argument": name} for name in ("text", "number", "yes", "list", "none", "absent")]
    given = {"text": "a b; c", "number": 4.5, "yes": True, "list": ["ü", 1], "none": None}
    order = Order.of({"argv": ["prog", *marks], **given})
    assert order.argv == ("prog", "a b; c", "4.5", "true", '["ü", 1]')
    assert order.arguments == given


def test_arguments_are_data() -> None:
    """A name that a shell or a loader knows stays a key of JSON."""
    event = {"id": 3, "type": "order.paid", "payload": {"order": 7}}
    payload = {"argv": ["a"], "LD_PRELOAD": "/x.so", "event": event}
    names = environment(Order.of(payload), CLAIM, FILE, {})
    assert json.loads(names["TENURE_ARGUMENTS"]) == {"LD_PRELOAD": "/x.so", "event": event}
    assert "LD_PRELOAD" not in names
    assert names["TENURE_EVENT_TYPE"] == "order.paid"
    largest = {"id": 3, "type": "t", "payload": {"note": "ü" * 32_000}}
    told = environment(Order.of({"argv": ["a"], "event": largest}), CLAIM, FILE, {})["TENURE_EVENT"]
    assert len(told.encode()) < 128 * 1024, "the kernel refuses a longer one"
    long = environment(Order.of({"argv": ["a"], "text": "ü" * ARGUMENTS_BYTES}), CLAIM, FILE, {})
    assert "TENURE_ARGUMENTS" not in long
    assert long["TENURE_ARGUMENTS_FILE"] == "/f"


def test_an_end_becomes_an_outcome() -> None:
    assert verdict(Ended(exit_code=0), (0,), "") == Done({"exit_code": 0})
    assert verdict(Ended(exit_code=3), (0, 3), "x") == Done({"exit_code": 3})
    assert verdict(Ended(exit_code=0), (1,), "") == Retry("EXIT_0", "exit code 0")
    assert verdict(Ended(exit_code=9), (0,), "boom") == Retry("EXIT_9", "exit code 9: boom")
    assert verdict(Ended(signal=11), (0,), "") == Retry("SIGNAL_SIGSEGV", "killed by SIGSEGV")
    assert verdict(Ended(signal=40), (0,), "") == Retry("SIGNAL_40", "killed by 40")
    # A success that arrives after the stop is no success: the deadline was missed.
    stopped = verdict(Ended(exit_code=0, stopped="expired"), (0,), "")
    assert isinstance(stopped, Retry)
    assert stopped.error_code == "STOPPED"


async def test_output_is_cut_at_the_bound_and_marked_once() -> None:
    kept: list[tuple[str, bytes]] = []

    async def log(stream: str, data: bytes) -> None:
        kept.append((stream, data))

    output = Output(log, 5)
    for stream in ("stdout", "stderr", "stdout", "stderr"):
        await output.take(stream, b"abc")
    mark = b"\n[truncated: output beyond 5 bytes is not kept]\n"
    assert kept == [("stdout", b"abc"), ("stderr", b"ab"), ("stderr", mark)]


async def test_output_that_fits_exactly_is_not_marked() -> None:
    kept: list[bytes] = []

    async def log(_stream: str, data: bytes) -> None:
        kept.append(data)

    await Output(log, 3).take("stdout", b"abc")
    assert kept == [b"abc"]


async def test_the_last_error_line_is_safe_to_store_and_show() -> None:
    async def log(_stream: str, _data: bytes) -> None:
        return

    output = Output(log, 0)
    await output.take("stderr", b"first\nlast \x1b[31m\0 \xff" + b"y" * 10 + b"\n\n  \n")
    line = output.last_error_line()
    assert line.startswith("last")
    assert line.isprintable()
    await output.take("stderr", b"z" * 10_000)
    assert len(output.last_error_line()) == 500
