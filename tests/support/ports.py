"""Hand out ports of this machine to servers of tests.

The kernel gives ports of its own range to outgoing connections too, so that a free one of these may be taken
before a server binds it. Those below that range are handed out once in a run, and only if they are free.
"""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from tests.support.server import exclusively
from tests.support.slowness import ROOT

FIRST: Final = 10_000
END: Final = 32_000


def free_port(neighbours: int = 1) -> int:
    """Return a free port, the first of so many in a row."""
    with exclusively("ports"):
        last = Path(os.environ[ROOT]) / "port"
        # runs beside each other begin in different places
        begin = int(last.read_text()) if last.exists() else random.randrange(FIRST, END)  # noqa: S311
        port = next(one for one in _rows(begin, neighbours) if _are_free(one, neighbours))
        last.write_text(str(port + neighbours))
    return port


def _rows(begin: int, neighbours: int) -> Iterator[int]:
    room = END - FIRST - neighbours
    return (FIRST + (begin - FIRST + step) % room for step in count())


def _are_free(port: int, neighbours: int) -> bool:
    with ExitStack() as stack:
        try:
            for one in range(port, port + neighbours):
                stack.enter_context(socket.create_server(("127.0.0.1", one)))
        except OSError:
            return False
    return True
