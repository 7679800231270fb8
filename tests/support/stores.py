"""A place for handlers, without a replica around it."""

import os
from typing import Any

from supervisor.actor import Place
from supervisor.config import load_settings
from supervisor.store import Store


def place_of(store: Store, worker_id: str = "me", **settings: Any) -> Place:
    own = {"command_user": str(os.geteuid())}  # commands write where their test does
    return Place(worker_id, load_settings(**own, **settings), store, store)
