"""The composition root: the only module that knows both the engine and the actors."""

from collections.abc import Mapping, Sequence

import anyio

from actors import ROSTER
from schemas.migrate import check
from supervisor import logs
from supervisor.actor import Actor
from supervisor.api import check_bind
from supervisor.config import Settings
from supervisor.errors import BadSettings, only_expected
from supervisor.extensions import installed_actors
from supervisor.lease import Lease
from supervisor.lease_sql import grants
from supervisor.replica import Replica
from supervisor.urls import runtime_urls


def actors() -> Mapping[str, Actor]:
    """Every actor there is, those of packages too: by domain for runs, by domain and table for rows."""
    return {**{actor.name: actor for actor in ROSTER}, **installed_actors(ROSTER)}


def lease_rights() -> Mapping[str, str]:
    """The GRANTs of every table that a package's actors work on; those of our own are in our migrations."""
    return {table: grants(*leases) for table, leases in package_leases().items()}


def package_leases() -> Mapping[str, Sequence[Lease]]:
    """The contracts of installed packages, by table: several of one table are granted together."""
    by_table: dict[str, list[Lease]] = {}
    for actor in installed_actors(ROSTER).values():
        if actor.lease is not None:
            by_table.setdefault(actor.lease.table, []).append(actor.lease)
    return by_table


def leases() -> list[Lease]:
    return [actor.lease for actor in actors().values() if actor.lease is not None]


def chosen_actors(settings: Settings) -> Mapping[str, Actor]:
    """Those this replica works for."""
    known = dict.fromkeys(actor.domain for actor in actors().values())
    unknown = [name for name in settings.domain_names if name not in known]
    if unknown:
        raise BadSettings(what=f"TENURE_DOMAINS names {', '.join(unknown)}; known are {', '.join(known)}")
    chosen = settings.domain_names or known
    return {name: actor for name, actor in actors().items() if actor.domain in chosen}


def run_replica(settings: Settings, replica_class: type[Replica] = Replica) -> int:
    """Run one replica until it is told to leave; the exit code."""
    logs.configure(settings)
    check_bind(settings)
    try:
        anyio.run(_run, settings, replica_class)
    except BaseExceptionGroup as group:
        raise only_expected(group) from None
    return 0


async def _run(settings: Settings, replica_class: type[Replica]) -> None:
    urls = runtime_urls(settings)
    (await check(urls.control)).refuse_old()
    await replica_class(settings, urls, chosen_actors(settings)).run()
