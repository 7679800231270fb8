"""A reading that fails is in the log as well: who asked may not be who can do something about it."""

from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.artifacts.errors import ArtifactError, BadRange, InvalidKey
from supervisor.logs import logger

_log = logger("artifacts")


@contextmanager
def reported(key: str) -> Iterator[None]:
    try:
        yield
    except (InvalidKey, BadRange):
        # the fault of who asked, and told to him
        raise
    except ArtifactError as error:
        _log.warning("artifact not read", key=key, code=error.code, error=str(error))
        raise
