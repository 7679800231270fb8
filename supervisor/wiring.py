"""The composition root: the only module that knows both the engine and the actors.

What a replica needs is loaded when one is run: the command line asks here too, for the domains' commands.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import anyio

from actors import DOMAINS, ROSTER
from schemas.migrate import check
from supervisor.actor import Actor
from supervisor.config import Settings
from supervisor.errors import BadSettings, only_expected
from supervisor.extensions import installed_actors
from supervisor.lease import Lease
from supervisor.lease_sql import grants
from supervisor.logs import logger
from supervisor.parameters import TaskType
from supervisor.store import Store
from supervisor.urls import check_worker_logins, runtime_urls

if TYPE_CHECKING:
    import typer

    from supervisor.doctor import Finding
    from supervisor.replica import Replica

COLLECTED: Final = (20_000, 20, 50)


@cache
def actors() -> Mapping[str, Actor]:
    """Every actor there is, those of packages too: by domain for runs, by domain and table for rows.

    Looked for once: to go through all that is installed takes milliseconds, and requests ask for it.
    """
    return {**{actor.name: actor for actor in ROSTER}, **installed_actors(ROSTER)}


def lease_rights() -> Mapping[str, str]:
    """The GRANTs of every leased table, from its contracts: several of one table are granted together."""
    return {table: grants(*leases) for table, leases in _by_table(actors().values()).items()}


def task_types() -> Sequence[Mapping[str, Any]]:
    """What runs take, by domain and action, as rows for the database."""
    return [
        task_type.as_row(actor.domain)
        for actor in actors().values()
        if actor.lease is None
        for task_type in actor.task_types or [TaskType()]
    ]


def _by_table(some: Iterable[Actor]) -> Mapping[str, Sequence[Lease]]:
    by_table: dict[str, list[Lease]] = {}
    for actor in some:
        if actor.lease is not None:
            by_table.setdefault(actor.lease.table, []).append(actor.lease)
    return by_table


def leases() -> list[Lease]:
    return [actor.lease for actor in actors().values() if actor.lease is not None]


def commands() -> "Mapping[str, typer.Typer]":
    """What the domains add to the command line."""
    made: dict[str, typer.Typer] = {}
    for domain in DOMAINS:
        made |= domain.commands() if domain.commands is not None else {}
    return made


async def add_samples(store: Store, settings: Settings) -> None:
    for domain in DOMAINS:
        if domain.sample is not None:
            await domain.sample(store, settings)


async def domain_findings(store: Store) -> "list[Finding]":
    """What the domains' own checks find, for `tenure doctor`."""
    return [
        finding
        for domain in DOMAINS
        if domain.findings is not None
        for finding in await domain.findings(store)
    ]


def chosen_actors(settings: Settings) -> Mapping[str, Actor]:
    """Those this replica works for."""
    known = dict.fromkeys(actor.domain for actor in actors().values())
    unknown = [name for name in settings.domain_names if name not in known]
    if unknown:
        raise BadSettings(what=f"TENURE_DOMAINS names {', '.join(unknown)}; known are {', '.join(known)}")
    chosen = settings.domain_names or known
    return {
        name: _fitting(actor, settings)
        for name, actor in actors().items()
        if actor.domain in chosen and (actor.fits is None or actor.fits(settings))
    }


def _fitting(actor: Actor, settings: Settings) -> Actor:
    """A lease is never shorter than the time in which cut-off work stops for certain."""
    if actor.lease is None or actor.lease.lease_seconds >= settings.stop_bound_seconds:
        return actor
    return replace(actor, lease=replace(actor.lease, lease_seconds=settings.stop_bound_seconds))


def check_domains(settings: Settings) -> None:
    if complaints := [what for domain in DOMAINS for what in domain.complaints(settings)]:
        raise BadSettings(what="; ".join(complaints))


def warn(settings: Settings) -> None:
    for domain in DOMAINS:
        for what in domain.warnings(settings):
            logger(domain.name).warning(what)


def run_replica(
    settings: Settings,
    replica_class: "type[Replica] | None" = None,
    announce: Callable[[int], None] | None = None,
) -> int:
    """Run one replica until it is told to leave; the exit code. `announce` gets the port when it answers."""
    # the web server and all that work is made of, for the one command that needs them
    from supervisor import logs  # noqa: PLC0415
    from supervisor.replica import Replica  # noqa: PLC0415

    logs.configure(settings)
    check_domains(settings)
    warn(settings)
    try:
        anyio.run(_run, settings, replica_class or Replica, announce)
    except BaseExceptionGroup as group:
        raise only_expected(group) from None
    return 0


async def _run(
    settings: Settings, replica_class: "type[Replica]", announce: Callable[[int], None] | None
) -> None:
    urls = runtime_urls(settings)
    (await check(urls.control or urls.worker)).refuse_old()
    if urls.control is None:
        await check_worker_logins(urls, pooled=settings.pooler == "transaction")
    else:
        await _check_entrance(settings, urls.control)
    replica = replica_class(settings, urls, chosen_actors(settings), DOMAINS)
    replica.announce = announce or replica.announce
    _settle_collector()
    await replica.run()


def _settle_collector() -> None:
    """What is loaded by now stays, and what a run is made of goes by itself.

    Looking through all of it every few hundred objects costs a tenth of a replica's time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED)


async def _check_entrance(settings: Settings, url: str) -> None:
    from supervisor.api.server import is_loopback  # noqa: PLC0415  for replicas alone

    if is_loopback(settings.http_host) or settings.api_token is not None:
        return
    from supervisor.api.access import check_entrance  # noqa: PLC0415  for those who can be reached

    store = Store(url, name="tenure start", size=1, pooled=settings.pooler == "transaction")
    try:
        await check_entrance(settings, store)
    finally:
        await store.close()
