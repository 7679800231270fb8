"""Actors of installed packages, through the entry-point group `tenure.actors`.

Each entry point gives an Actor or an iterable of them. A domain belongs to one package, so that a package can
add to the work there is and never take any over.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from schemas.packages import ACTORS, BadPackage, found, load, package_of
from supervisor.actor import Actor

_DOMAIN: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
BUILT_IN: Final = "tenure"


def installed_actors(built_in: Iterable[Actor]) -> Mapping[str, Actor]:
    """By name; `built_in` are those whose domains are taken."""
    owners = dict.fromkeys((actor.domain for actor in built_in), BUILT_IN)
    actors: dict[str, Actor] = {}
    for point in found(ACTORS):
        package = package_of(point)
        for actor in _given(package, point.value, load(point)):
            if not _DOMAIN.fullmatch(actor.domain):
                raise BadPackage(package=package, what=f"{actor.domain!r} cannot be a domain")
            if (owner := owners.setdefault(actor.domain, package)) != package:
                raise BadPackage(package=package, what=f"the domain {actor.domain} belongs to {owner}")
            if actor.name in actors:
                raise BadPackage(package=package, what=f"it has two actors {actor.name}")
            actors[actor.name] = actor
    return actors


def _given(package: str, value: str, loaded: Any) -> list[Actor]:
    if isinstance(loaded, Actor):
        return [loaded]
    if isinstance(loaded, Iterator):
        raise BadPackage(package=package, what=f"{value} can be read only once; make it a tuple of Actors")
    try:
        several = list(loaded)
    except Exception as error:
        what = f"{value} is no Actor and no iterable of them: {type(error).__name__}: {error}"
        raise BadPackage(package=package, what=what) from error
    if strange := [one for one in several if not isinstance(one, Actor)]:
        raise BadPackage(
            package=package, what=f"{value} gives {type(strange[0]).__name__}, which is no Actor"
        )
    return several
