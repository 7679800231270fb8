"""The command line in the test's own process: what it answered, and with which exit code."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.app import main
from supervisor.embedded import Urls


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Cli = Callable[..., Coroutine[Any, Any, Answer]]


def command_line(database: Urls, monkeypatch: pytest.MonkeyPatch, directory: Path) -> Cli:
    """Each command runs in a thread of its own, as a process would, on this database."""
    monkeypatch.chdir(directory)
    monkeypatch.setenv("TENURE_DATABASE_URL", database.control)
    monkeypatch.setenv("TENURE_WORKER_DATABASE_URL", database.worker)

    def call(args: tuple[str, ...]) -> Answer:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(args)
        assert "Traceback" not in err.getvalue()
        return Answer(code, out.getvalue(), err.getvalue())

    async def run(*args: str) -> Answer:
        return await asyncio.to_thread(call, args)

    return run
