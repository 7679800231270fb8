"""The command line without a database: usage, help, and refusals that change nothing and tell no secret."""

import json
import os
import pwd
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import output, session
from supervisor.cli.app import app, main
from supervisor.cli.inputs import check_name, parse_instant, parse_payload, read_payload
from supervisor.errors import BadInput
from supervisor.jobspec import PAYLOAD_BYTES

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in list(os.environ):
        if name.startswith("TENURE_") and name != "TENURE_TEST_ROOT":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*args: str, **env: str) -> tuple[int, str, str]:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = main(args)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    import typer.main

    command = group or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield path
        return
    for name, child in command.commands.items():
        yield from commands(child, (*path, name))


def test_every_pinned_command_is_there() -> None:
    assert {" ".join(path) for path in commands()} == {
        "up",
        "open",
        "migrate",
        "status",
        "doctor",
        "verify",
        "artifacts gc",
        "artifacts migrate",
        "artifacts verify",
        "duplicates remove",
        "library add",
        "library errors",
        "library list",
        "library remove",
        "library scan",
        "library status",
        "thumbs cleanup",
        "thumbs request",
        "thumbs show",
        "media attach",
        "media detach",
        "media gc",
        "media health",
        "media move",
        "media rendition",
        "media replay",
        "media role",
        "media rules",
        "media show",
        "media writers",
        "capture list",
        "capture refuse",
        "capture show",
        "capture submit",
        "completion",
        "evidence residues",
        "evidence show",
        "evidence verify",
        "identity list",
        "identity load",
        "identity remap",
        "repo add",
        "repo list",
        "repo remove",
        "repo show",
        "schedule days",
        "schedule diff",
        "schedule show",
        "schedule versions",
        "token create",
        "token list",
        "token revoke",
        "sync backfill",
        "sync cancel",
        "sync disable",
        "sync enable",
        "sync list",
        "sync run",
        "sync schedule",
        "sync show",
        "sync status",
        "job add",
        "job set",
        "job list",
        "job show",
        "job enable",
        "job disable",
        "job remove",
        "job trigger",
        "run list",
        "run show",
        "run why",
        "run wait",
        "run cancel",
        "run retry",
        "run logs",
        "worker list",
        "worker drain",
        "leader show",
        "leader resign",
        "leader history",
        "job apply",
        "event emit",
        "event list",
        "domain pause",
        "domain resume",
        "domain list",
        "setting get",
        "setting set",
        "audit list",
    }


@pytest.mark.parametrize("path", list(commands()))
def test_every_command_has_help_and_json(cli: Cli, path: tuple[str, ...]) -> None:
    code, out, _ = cli(*path, "--help", COLUMNS="200")
    assert code == 0
    assert "Usage: tenure " + " ".join(path) in out
    if path != ("up",):
        assert "--json" in out


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["job"],
        ["nonsense"],
        ["job", "nonsense"],
        ["status", "--nonsense"],
        ["run", "show"],
        ["run", "show", "x"],
        ["run", "show", "0"],
        ["run", "show", "-1"],
        ["run", "show", "9223372036854775808"],
        ["run", "list", "--limit", "0"],
        ["run", "list", "--state", "HAPPY"],
        ["run", "wait", "1", "--timeout", "-1"],
        ["up", "--replicas", "0"],
        ["up", "--port", "65536"],
        ["job", "add", "x", "--domain", "command", "--max-attempts", "0"],
        ["job", "add", "x", "--domain", "command", "--timeout", "-1"],
        ["job", "add", "x", "--domain", "command", "--priority", "x"],
        ["job", "add", "x"],
        ["job", "set", "x"],
        ["job", "add", "x; drop table", "--domain", "command"],
        ["job", "add", "", "--domain", "command"],
        ["job", "add", "x", "--domain", "nonsense", "--payload", "{}"],
        ["job", "add", "x", "--domain", "command", "--payload", "{}"],
        ["job", "add", "x", "--domain", "command", "--payload", "[1]"],
        ["job", "add", "x", "--domain", "command", "--payload", "{oops"],
        ["job", "add", "x", "--domain", "command", "--payload", "@/no/such/file"],
        ["job", "trigger", "x", "--not-before", "tomorrow"],
        ["job", "trigger", "x", "--not-before", "2030-01-31T09:00"],
        ["job", "show", "\udcff\udcfe"],
        ["worker", "drain", "\udcff"],
    ],
)
def test_wrong_usage_exits_2_before_any_database(cli: Cli, args: list[str]) -> None:
    code, _, err = cli(*args)
    assert code == 2
    assert "Traceback" not in err


def test_an_unknown_domain_names_the_known_ones(cli: Cli) -> None:
    code, _, err = cli("job", "add", "x", "--domain", "nonsense", "--payload", "{}", "--json")
    assert code == 2
    assert "known are command" in json.loads(err)["error"]


def test_usage_errors_are_json_when_asked_for(cli: Cli) -> None:
    code, out, err = cli("run", "show", "x", "--json")
    assert (code, out) == (2, "")
    assert json.loads(err).keys() == {"error", "hint"}
    assert "tenure run show --help" in json.loads(err)["hint"]


def test_without_any_database_exit_3_and_how_to_start_one(cli: Cli) -> None:
    code, out, err = cli("status")
    assert (code, out) == (3, "")
    assert "tenure up" in err
    code, _, err = cli("status", "--json")
    assert code == 3
    assert "tenure up" in json.loads(err)["hint"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://tenure:s3cr3t-w0rd@127.0.0.1:{closed}/db",
        "postgresql://tenure:s3cr3t-w0rd@no-such-host.invalid/db",
        "mysql://tenure:s3cr3t-w0rd@127.0.0.1/db",
        "s3cr3t-w0rd",
        "postgresql://tenure:a/s3cr3t-w0rd@127.0.0.1/db",
        "postgresql://tenure:a#s3cr3t-w0rd@127.0.0.1/db",
        "postgresql://tenure:a@s3cr3t-w0rd:x@127.0.0.1/db",
        "postgresql://tenure:s3cr3t-w0rd@[::1/db",
        "postgresql://tenure:s3cr3t-w0rd@127.0.0.1:port/db",
        "postgresql://tenure:s3cr3t-w0rd\u2100@127.0.0.1/db",
    ],
)
@pytest.mark.parametrize("command", [("status",), ("migrate",), ("doctor",), ("up",), ("job", "list")])
def test_a_bad_url_exits_3_without_the_password(cli: Cli, url: str, command: tuple[str, ...]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = str(probe.getsockname()[1])
    code, out, err = cli(*command, TENURE_DATABASE_URL=url.replace("{closed}", closed))
    assert code == 3, err
    assert "s3cr3t-w0rd" not in out + err
    assert "Traceback" not in err


def test_wrong_settings_exit_2(cli: Cli) -> None:
    code, _, err = cli("status", TENURE_STOP_BOUND_SECONDS="1")
    assert code == 2
    assert "stop bound" in err
    code, _, err = cli("status", TENURE_STOP_BOUND_SECONDS="soon")
    assert code == 2
    assert "TENURE_STOP_BOUND_SECONDS" in err


def test_up_refuses_to_be_reachable_without_a_token(cli: Cli) -> None:
    """Before a database is started: a new one has no tokens; any other is asked for them."""
    code, _, err = cli("up", TENURE_HTTP_HOST="0.0.0.0")
    assert code == 2
    assert "TENURE_API_TOKEN" in err


WORKER = "postgresql://tenure:s3cr3t-w0rd@127.0.0.1:1/db"


def test_up_no_lead_refuses_every_other_secret(cli: Cli) -> None:
    for name in ("TENURE_DATABASE_URL", "TENURE_API_TOKEN"):
        code, _, err = cli("up", "--no-lead", TENURE_WORKER_DATABASE_URL=WORKER, **{name: WORKER})
        assert code == 2
        assert name in err
        assert "must not hold" in err
        assert "s3cr3t-w0rd" not in err


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--replicas", "2"), "`tenure up --no-lead --port P` for each"), (("--sample",), "the control login")],
)
def test_up_no_lead_refuses_what_goes_with_leading(cli: Cli, options: tuple[str, ...], words: str) -> None:
    code, _, err = cli("up", "--no-lead", *options, TENURE_WORKER_DATABASE_URL=WORKER)
    assert code == 2
    assert words in err


def test_up_no_lead_starts_no_embedded_database(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("up", "--no-lead")
    assert code == 2
    assert "needs TENURE_WORKER_DATABASE_URL" in err
    assert not (tmp_path / ".tenure").exists()


def test_the_option_wins_over_the_setting(cli: Cli) -> None:
    code, _, err = cli("up", TENURE_LEAD="false")
    assert (code, "needs TENURE_WORKER_DATABASE_URL" in err) == (2, True)
    code, _, err = cli("up", "--no-lead", TENURE_LEAD="true")
    assert (code, "needs TENURE_WORKER_DATABASE_URL" in err) == (2, True)
    code, _, err = cli("up", "--lead", TENURE_LEAD="false", TENURE_DATABASE_URL=WORKER)
    assert code == 3, "it asks the database, as a replica that may lead"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "1",
        "null",
        '"x"',
        "{oops",
        '{"a": NaN}',
        '{"a": Infinity}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_payload(text)


def test_payloads_up_to_the_limit() -> None:
    frame = len(json.dumps({"a": ""}))
    assert parse_payload(json.dumps({"a": "x" * (PAYLOAD_BYTES - frame)}))
    with pytest.raises(BadInput, match="over the limit"):
        parse_payload(json.dumps({"a": "x" * (PAYLOAD_BYTES - frame + 1)}))
    with pytest.raises(BadInput, match="over the limit"):
        parse_payload(json.dumps({"a": "ä" * (PAYLOAD_BYTES // 2)}))


def test_payload_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"argv": ["true"]}')
    assert read_payload(f"@{file}") == {"argv": ["true"]}
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="cannot be read"):
        read_payload(f"@{file}")


def test_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO('{"argv": ["true"]}'))
    assert read_payload("-") == {"argv": ["true"]}


@pytest.mark.parametrize("name", ["x", "a.b_c:d/e-f", "9" * 200])
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-x", " x", "x\n", "x y", "é", "9" * 201, "'; --", "x\x1b[31m"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BadInput):
        check_name(name)


def test_instants_have_an_offset() -> None:
    assert parse_instant("2030-01-31T09:00:00Z") == datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (5400, "1h 30m"),
        (90000, "1d 1h"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


def test_ages_look_both_ways() -> None:
    now = datetime.now(UTC)
    assert output.age(now, now - timedelta(minutes=2)) == "2m ago"
    assert output.age(now, (now + timedelta(minutes=2)).isoformat()) == "in 2m"
    assert output.age(now, None) == ""


def test_nothing_of_a_user_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07[bold red]x[/] :smile: \r\u202e"
    output.print_table(["NAME"], [[hostile]], empty="")
    output.say(hostile)
    output.print_facts([("name", hostile)])
    output.print_error(hostile, hostile, as_json=False)
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
        assert "[bold red]x[/] :smile:" in text


def test_the_audit_has_the_user_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment could name anybody."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert session.actor() in {f"cli:{pwd.getpwuid(os.getuid()).pw_name}", f"cli:{os.getuid()}"}
