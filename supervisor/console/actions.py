"""What an operator does to several runs, and the sentence that says what came of it."""

from collections.abc import Sequence
from typing import Final

from supervisor import operations
from supervisor.errors import BadInput
from supervisor.store import Store

MOST_NAMED: Final = 5


async def on_runs(store: Store, actor: str, what: str, run_ids: Sequence[int]) -> tuple[str, bool]:
    """Each by itself: those that cannot are named with the reason, and the others are done."""
    if what == "cancel":
        outcomes = await operations.cancel_many(store, actor, run_ids)
        asked = "Cancelling was asked for"
    elif what == "retry":
        outcomes = await operations.retry_many(store, actor, run_ids)
        asked = "Another attempt was asked for"
    else:
        raise BadInput(what="runs can be cancelled or retried")
    done = [one.id for one in outcomes if one.outcome in ("requested", "already")]
    refused = [one.what or "" for one in outcomes if one.outcome not in ("requested", "already")]
    sentences = [f"{asked}: {_some([f'run {run_id}' for run_id in done])}."] if done else []
    if refused:
        sentences.append(f"Not possible: {_some(refused, '; ')}.")
    return " ".join(sentences), not done


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - MOST_NAMED
    return between.join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
