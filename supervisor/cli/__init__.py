"""The command line: one module a noun, thin, no SQL.

Exit codes: 0 ok, 1 failed, 2 usage, 3 database unreachable, 4 conflict, 5 not found. An expected error is one
line on stderr and one that says what to do next; with --json both are one JSON object, also on stderr.
"""

import contextlib
import os
import sys
from collections.abc import Sequence

import typer

from supervisor.cli import (
    audit,
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
    up,
    worker,
)
from supervisor.errors import OutcomeUnknown, TenureError, only_expected

__all__ = ["app", "main"]

UNKNOWN_HINT = "it may or may not have been done: look before you repeat it"

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
app.command("migrate")(migrate.migrate)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.add_typer(job.app, name="job")
app.add_typer(run.app, name="run")
app.add_typer(worker.app, name="worker")
app.add_typer(leader.app, name="leader")
app.add_typer(event.app, name="event")
app.add_typer(domain.app, name="domain")
app.add_typer(setting.app, name="setting")
app.add_typer(audit.app, name="audit")


def main(args: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if args is None else args)
    output.prepare_streams()
    try:
        code = app(arguments, standalone_mode=False, prog_name="tenure")
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


def _refuse_usage(error: typer.TyperException, arguments: list[str]) -> int:
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tenure"
        output.print_error(message, f"`{command} --help` shows how it is used", as_json="--json" in arguments)
    return error.exit_code


def _fail(error: TenureError, arguments: list[str]) -> int:
    unknown = isinstance(error, OutcomeUnknown)
    hint = UNKNOWN_HINT if unknown else error.advice
    output.print_error(str(error), hint, as_json="--json" in arguments)
    return 3 if unknown else error.exit_code
