"""What installed packages add: actors (`tenure.actors`) and migrations (`tenure.migrations`), by entry point.

An entry point of `tenure.migrations` is named after its namespace in the ledger; its value is a package with
a directory `migrations/` of NNNN_what.sql files, under the rules of our own. They run as tenure_owner: who
installs a package trusts it.

Somebody else's code is loaded here. Whatever it does, the error names the package it came from.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import Any, Final

from schemas import Source
from supervisor.errors import TenureError

ACTORS: Final = "tenure.actors"
MIGRATIONS: Final = "tenure.migrations"
OURS: Final = "tenure"
_NAMESPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


class BadPackage(TenureError):
    """the installed package {package} cannot be used: {what}"""

    hint = "install a version of it that fits, or uninstall it"


def found(group: str) -> Iterator[EntryPoint]:
    """In an order that is the same everywhere."""
    yield from sorted(entry_points(group=group), key=lambda point: (package_of(point), point.name))


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise _bad(point, f"{point.value} cannot be loaded: {type(error).__name__}: {error}") from error


def installed_migrations() -> Mapping[str, Source]:
    """By namespace, in the order in which they are applied."""
    sources: dict[str, Source] = {}
    for point in sorted(found(MIGRATIONS), key=lambda point: point.name):
        if not _NAMESPACE.fullmatch(point.name) or point.name == OURS:
            raise _bad(point, f"{point.name!r} cannot be a namespace of migrations")
        if point.name in sources:
            raise _bad(point, f"another package has migrations in the namespace {point.name} too")
        sources[point.name] = _source(point)
    return sources


def _source(point: EntryPoint) -> Source:
    try:
        import_module(point.module)
        source = Source(files(point.module))
        count = len(source.migrations())
    except Exception as error:
        raise _bad(point, f"its migrations cannot be read: {type(error).__name__}: {error}") from error
    if count == 0:
        raise _bad(point, f"{point.module} has no migrations/NNNN_what.sql")
    return source


def _bad(point: EntryPoint, what: str) -> BadPackage:
    return BadPackage(package=package_of(point), what=what)
