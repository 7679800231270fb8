"""The composition root: the only module that knows both the engine and the actors."""

from collections.abc import Mapping

import anyio

from actors import ROSTER
from schemas.migrate import check
from supervisor import logs
from supervisor.actor import Actor
from supervisor.api import check_bind
from supervisor.config import Settings
from supervisor.errors import BadSettings, only_expected
from supervisor.replica import Replica
from supervisor.urls import runtime_urls


def actors() -> Mapping[str, Actor]:
    """Every actor there is: by its domain for runs, by domain and table for leased rows."""
    return {actor.name: actor for actor in ROSTER}


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
