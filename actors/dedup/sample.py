"""A sample library to look at after `tenure up --sample`: made once, then scanned, hashed and thumbnailed."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from actors.dedup.cli.trigger import trigger
from actors.dedup.sample_files import make_library
from supervisor.config import Settings
from supervisor.errors import Conflict
from supervisor.logs import logger
from supervisor.store import Store

ACTOR: Final = "sample"
NAME: Final = "sample"

_log = logger("dedup")


async def sample(store: Store, settings: Settings) -> None:
    """Done again, it adds nothing. Without a place to write to there is no sample, and the rest goes on."""
    if settings.libraries_dir is None:
        _log.warning("no sample library", reason="TENURE_LIBRARIES_DIR is not set")
        return
    root = settings.libraries_dir / NAME
    try:
        await anyio.to_thread.run_sync(partial(_make, root))
    except OSError as error:
        _log.warning("no sample library", reason=str(error))
        return
    with suppress(Conflict):  # it is there, or another library has its place
        await store.row("add_library_root", ACTOR, NAME, NAME)
    library = await store.row("read_library_root", NAME)
    if library is None:
        return
    payload = {"library": NAME, "hash": True, "thumbnails": True}
    with suppress(Conflict):  # the definition was changed since: the key's run has another payload
        await trigger(store, ACTOR, "scan", payload, f"sample/library:{library['id']}")


def _make(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    make_library(root)
