"""A child process gets its environment through a pipe, so that /proc never shows what is secret in it.

What a process was started with can be read in /proc/PID/environ by everything that its user runs, until the
process has closed itself (`prctl.close_memory`). So it is started with what the loader and the interpreter
need, closes itself, and takes the rest from the pipe.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Final

from supervisor.prctl import close_memory

VARIABLE: Final = "TENURE_ENVIRONMENT_FD"
PLAIN: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "TZ", "TMPDIR", "TERM", "COLUMNS", "NO_COLOR", "VIRTUAL_ENV"}
)
PLAIN_KINDS: Final = ("LANG", "LC_", "LD_", "PYTHON", "MALLOC_", "GLIBC_", "SSL_CERT_")


@contextmanager
def environment_for_child(environment: Mapping[str, str]) -> Iterator[tuple[dict[str, str], int]]:
    """Give what a child is started with, and the descriptor that it inherits; the rest is sent meanwhile."""
    plain = {name: value for name, value in environment.items() if _is_plain(name)}
    rest = {name: value for name, value in environment.items() if name not in plain}
    read, write = os.pipe()
    Thread(target=_send, args=(write, json.dumps(rest).encode()), daemon=True).start()
    try:
        yield {**plain, VARIABLE: str(read)}, read
    finally:
        os.close(read)


def receive_environment() -> None:
    """Close this process to others of its user, and take over what its parent has for it."""
    close_memory()
    handle = os.environ.pop(VARIABLE, None)
    if handle is not None:
        with os.fdopen(int(handle), encoding="utf-8") as pipe:
            os.environ.update(json.load(pipe))


def _is_plain(name: str) -> bool:
    return name in PLAIN or name.startswith(PLAIN_KINDS)


def _send(pipe: int, content: bytes) -> None:
    """In a thread: the child reads when it is up, and a long environment does not fit into the pipe."""
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:
        file.write(content)
