"""What this domain adds to the command line: `tenure media`."""

from collections.abc import Mapping

import typer

from actors.media.cli import look, rules, work

app = typer.Typer(no_args_is_help=True, help="Contents, who uses them and where, and how each came about.")
work.add_to(app)
look.add_to(app)
rules.add_to(app)


def commands() -> Mapping[str, typer.Typer]:
    return {"media": app}
