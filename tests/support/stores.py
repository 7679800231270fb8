"""A place for handlers, without a replica around it."""

from typing import Any

from supervisor.actor import Place
from supervisor.config import load_settings
from supervisor.store import Store


def place_of(store: Store, worker_id: str = "me", **settings: Any) -> Place:
    return Place(worker_id, load_settings(**settings), store, store)
