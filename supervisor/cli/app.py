"""The whole command line, the domains' part too.

Exit codes: 0 ok, 1 failed, 2 usage, 3 database unreachable, 4 conflict, 5 not found. An expected error is one
line on stderr and one that says what to do next; with --json both are one JSON object, also on stderr.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
import typer.main

from supervisor import logs
from supervisor.cli import (
    artifacts,
    audit,
    completion,
    doctor,
    domain,
    event,
    job,
    leader,
    migrate,
    output,
    run,
    setting,
    status,
    token,
    up,
    verify,
    worker,
)
from supervisor.cli.advice import advice
from supervisor.cli.open import open_
from supervisor.errors import OutcomeUnknown, TenureError, only_expected
from supervisor.handover import receive_environment
from supervisor.wiring import commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="tenure",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""A leader-elected supervisor for leased work on PostgreSQL.

Start with `tenure up --replicas 3 --sample`, then look with `tenure status`.

The database is TENURE_DATABASE_URL, or the embedded one that `tenure up` keeps in TENURE_STATE_DIR (.tenure).
Every command takes `--json`.

Exit codes: 0 ok, 1 failed, 2 usage, 3 database unreachable, 4 conflict, 5 not found.
""",
)
app.command("up")(up.up)
app.command("open")(open_)
app.command("migrate")(migrate.migrate)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("verify")(verify.verify)
app.command("completion")(completion.completion)
app.add_typer(job.app, name="job")
app.add_typer(run.app, name="run")
app.add_typer(worker.app, name="worker")
app.add_typer(leader.app, name="leader")
app.add_typer(event.app, name="event")
app.add_typer(domain.app, name="domain")
app.add_typer(setting.app, name="setting")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(artifacts.app, name="artifacts")
for noun, commands_of in commands().items():
    app.add_typer(commands_of, name=noun)


def enter() -> int:
    """Run the command line in a process of its own, which others of its user cannot look into."""
    receive_environment()
    return main()


def main(args: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if args is None else args)
    output.prepare_streams()
    logs.to_standard_error()
    if completion.VARIABLE in os.environ:
        completion.answer(app)
    try:
        code = _command()(arguments, standalone_mode=False, prog_name="tenure")
        sys.stdout.flush()
    except typer.TyperException as error:
        return _refuse_usage(error, arguments)
    except TenureError as error:
        return _fail(error, arguments)
    except BaseExceptionGroup as group:
        expected = only_expected(group)
        if not isinstance(expected, TenureError):
            raise
        return _fail(expected, arguments)
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # The reader has seen enough; nothing more can be said to it, at interpreter exit either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


@cache
def _command() -> Any:
    """Build all commands once: it takes 0.1 s, and the advice on an error needs them too."""
    return typer.main.get_command(app)


def _refuse_usage(error: typer.TyperException, arguments: list[str]) -> int:
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tenure"
        output.print_error(message, f"`{command} --help` shows how it is used", as_json="--json" in arguments)
    return error.exit_code


def _fail(error: TenureError, arguments: list[str]) -> int:
    hint = advice(error, _command(), arguments)
    output.print_error(str(error), hint, as_json="--json" in arguments)
    return 3 if isinstance(error, OutcomeUnknown) else error.exit_code
