"""What this domain adds to the command line: `tenure capture` and `tenure schedule`."""

from collections.abc import Mapping

import typer

from actors.capture.cli import capture, schedule

_capture = typer.Typer(no_args_is_help=True, help="Pictures of schedules: submitted, read, refused.")
capture.add_to(_capture)
_schedule = typer.Typer(no_args_is_help=True, help="What was read: the schedule of a day, and its versions.")
schedule.add_to(_schedule)


def commands() -> Mapping[str, typer.Typer]:
    return {"capture": _capture, "schedule": _schedule}
