"""Structured logs: JSON lines for machines, aligned text on a terminal.

`worker_id`, `epoch`, `run` and `claim` are bound where they are known and stand in every line after that.
Those of a run are looked up when there is a line: most runs have none, and to bind them for each costs more
than a short run does.

What libraries log by the standard module, from warnings on, becomes a line of the same form.
"""

import io
import logging
import sys
import traceback
from contextvars import ContextVar
from typing import Final, NamedTuple, TextIO, cast
from uuid import UUID

import structlog

from supervisor.config import Settings


class RunNamed(NamedTuple):
    run: int
    claim: UUID
    epoch: int


RUN: Final[ContextVar[RunNamed | None]] = ContextVar("run", default=None)
"""The run that is executed here; tasks begun by its handler inherit it."""


def configure(settings: Settings) -> None:
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # the default prints the values of variables with a traceback, and some are secrets
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if as_text
        else structlog.processors.JSONRenderer(ensure_ascii=True)
    )
    structlog.configure(
        processors=[
            name_run,  # before what is bound further out, which has an epoch, too
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info if not as_text else _as_it_is,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _FromLibraries(logging.WARNING)


def name_run(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if (named := RUN.get()) is not None:
        event.setdefault("run", named.run)
        event.setdefault("claim", str(named.claim))
        event.setdefault("epoch", named.epoch)
    return event


def to_standard_error() -> None:
    """For commands: their output is for pipes, and no line of a log may stand in it."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())))


class _FromLibraries(logging.Handler):
    """The handler of records that no other handler takes; the standard one prints them as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        more = {}
        if record.exc_info:
            # without the values of variables, some of which are secrets
            more["exception"] = "".join(traceback.format_exception(*record.exc_info))
        logger(record.name).log(record.levelno, record.getMessage().strip(), **more)


class _StandardError(io.TextIOBase):
    """Whatever standard error is now: loggers live longer than a redirection of it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _as_it_is(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return event


def logger(name: str) -> structlog.stdlib.BoundLogger:
    bound: structlog.stdlib.BoundLogger = structlog.get_logger(part=name)
    return bound
