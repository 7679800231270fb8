"""What this domain adds to the command line: `tenure library`, `tenure duplicates`, `tenure thumbs`."""

from collections.abc import Mapping

import typer

from actors.dedup.cli import duplicates, library, thumbs


def commands() -> Mapping[str, typer.Typer]:
    return {"library": library.app, "duplicates": duplicates.app, "thumbs": thumbs.app}
