"""Which replicas of a state directory serve, and where: for `tenure open`, which asks nobody over HTTP.

A replica keeps a file of the directory `serving` locked for as long as it lives. One without a lock belongs
to a replica that has ended, and is removed by the next who looks.
"""

import fcntl
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from supervisor.own_file import NotOurs, new_file, own_handle
from supervisor.state_dir import is_private, make_state_dir, private_dir

DIRECTORY: Final = "serving"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  what is listened to, not bound here


def url_of(host: str, port: int) -> str:
    """Return where a browser on this machine finds a replica that listens there."""
    name = host.strip("[]")
    name = _EVERYWHERE.get(name, name)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def register(state: Path, url: str) -> Callable[[], None]:
    """Note that this process serves there until it ends, or until the answer is called."""
    make_state_dir(state)
    directory = private_dir(state / DIRECTORY)
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    draft = directory / f".{name}"
    file = new_file(draft)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(url)
        file.flush()
        draft.rename(directory / name)
    except BaseException:
        file.close()
        raise
    return file.close


def addresses(state: Path) -> list[str]:
    """Return where replicas of this directory serve, the lowest port first."""
    directory = state / DIRECTORY
    if not is_private(directory):
        return []
    found = [_read(path) for path in directory.iterdir() if not path.name.startswith(".")]
    return sorted(filter(None, found), key=lambda url: urlsplit(url).port or 0)


def _read(path: Path) -> str:
    """Return the address of one that lives, else nothing; nor what is no file of ours."""
    with suppress(FileNotFoundError, NotOurs), os.fdopen(own_handle(path)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
        path.unlink()
    return ""
