"""The figures that domains show of the database, kept up to date on every replica."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
from prometheus_client import CollectorRegistry

from supervisor.domain import Domain
from supervisor.logs import logger
from supervisor.store import Store

SECONDS: Final = 15.0

Update = Callable[[Store], Awaitable[None]]


def register_figures(domains: Sequence[Domain], registry: CollectorRegistry) -> dict[str, Update]:
    return {domain.name: domain.figures(registry) for domain in domains if domain.figures is not None}


async def keep_domain_figures(updates: dict[str, Update], store: Store) -> None:
    """One after the other: no domain's figures are worth more than a connection at a time."""
    while updates:
        for name, update in updates.items():
            try:
                await update(store)
            except Exception as error:  # noqa: BLE001  a domain's figures never stop a replica
                logger("figures").info("no figures", domain=name, reason=str(error))
        await anyio.sleep(SECONDS)
