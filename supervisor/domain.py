"""What a domain brings along besides its actors; `supervisor.wiring` hangs each part where it belongs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.config import Settings
from supervisor.store import Store

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry

    from supervisor.api.view import ReplicaView
    from supervisor.doctor import Finding


def _none(_settings: Settings) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Routes and commands are made when they are needed: most processes need only one of them."""

    name: str
    routes: "Callable[[ReplicaView], APIRouter] | None" = None
    commands: "Callable[[], Mapping[str, typer.Typer]] | None" = None
    pages: "Callable[[ReplicaView], APIRouter] | None" = None
    """Pages of the console, below `/NAME`, drawn with `supervisor.console.page`."""
    duties: Sequence[str] = ()
    """Named queries that the leader runs with every tick; the first argument is its epoch: they fence it."""
    complaints: Callable[[Settings], Sequence[str]] = _none
    """What is wrong with the settings, found before a replica starts."""
    warnings: Callable[[Settings], Sequence[str]] = _none
    """What a replica says in its log when it starts: what holds less than it could, and how to mend it."""
    figures: "Callable[[CollectorRegistry], Callable[[Store], Awaitable[None]]] | None" = None
    """Registers metrics of the database, and gives what brings them up to date."""
    findings: "Callable[[Store], Awaitable[list[Finding]]] | None" = None
    """Checks for `tenure doctor`."""
    sample: Callable[[Store, Settings], Awaitable[None]] | None = None
    """Work to look at after `tenure up --sample`; done again, it adds nothing."""
    body_bytes: Mapping[str, int] = field(default_factory=dict)
    """Paths, exactly as posted to, that may have a larger body; the route itself bounds what it reads."""
