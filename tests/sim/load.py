"""What users do: jobs, runs, events, cancellations. They are never cut off."""

import json
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    from tests.sim.world import World

JOBS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"max_attempts": 6},
    "timed": {"max_attempts": 3, "timeout_seconds": 2.5},
    "alone": {"max_attempts": 4, "concurrency": 1, "payload": {"alone": "alone"}},
    "newest": {
        "max_attempts": 2, "concurrency": 1, "concurrency_policy": "replace", "payload": {"alone": "newest"},
    },
    "minutely": {"cron": "* * * * *", "missed": "all", "payload": {"seconds": 0.8}, "parameters": {}},
    "told": {"event_type": "told", "payload": {"seconds": 0.5}, "parameters": {}},
}  # fmt: skip
BACKOFF: Final = {"backoff_seconds": 0.5, "backoff_max_seconds": 1.0}
PARAMETERS: Final = {name: {"type": "any"} for name in ("kind", "seconds", "stop", "outcome")}
GAP_SECONDS: Final = 0.9
LONGEST_SECONDS: Final = 14.0


class Load:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._draw = world.loop.random
        self.acknowledged: list[int] = []
        self.events = 0

    def define(self) -> None:
        for name, spec in JOBS.items():
            whole = {"domain": "command", "payload": {}, "parameters": PARAMETERS, **BACKOFF, **spec}
            self._ask(
                "SELECT 1 FROM supervisor.save_job('sim', $1, $2::text::jsonb, true)", name, json.dumps(whole)
            )

    def begin(self) -> None:
        for _ in range(4):
            self._enqueue("plain")
        self._next()

    def cancel_one(self) -> int | None:
        live = "SELECT id FROM supervisor.job_run WHERE state IN ('PENDING','ASSIGNED','RUNNING','ORPHANED')"
        ids = [row["id"] for row in self._ask(f"{live} AND cancel_requested_at IS NULL ORDER BY id")]
        if not ids:
            return None
        run: int = self._draw.choice(ids)
        self.cancel(run)
        return run

    def cancel(self, run: int) -> None:
        self._world.note("client", "cancels", run=run)
        self._ask("SELECT * FROM supervisor.request_cancel('sim', $1)", run)

    def _next(self) -> None:
        self._world.loop.at(self._draw.expovariate(1 / GAP_SECONDS), self._act)

    def _act(self) -> None:
        if self._world.healing:
            return
        kind = self._draw.choices(("plain", "timed", "alone", "newest", "told"), (6, 2, 3, 1, 1))[0]
        if kind == "told":
            self.events += 1
            self._ask("SELECT * FROM supervisor.emit('told', '{}', $1)", f"e{self.events}")
        else:
            self._enqueue(kind)
        self._next()

    def _enqueue(self, job: str) -> None:
        draw = self._draw
        order = {
            "kind": draw.choice(("inner", "inner", "child")),
            "seconds": round(
                draw.choice((draw.uniform(0.1, 2), draw.uniform(2, 6), draw.uniform(6, LONGEST_SECONDS))), 3
            ),
            # how long it goes on after it was told to stop
            "stop": round(draw.choice((0.0, 0.0, draw.uniform(0, 0.6), draw.uniform(0, 1.5), 11.0)), 3),
            "outcome": draw.choices(("done", "retry", "raise", "cancel"), (8, 2, 1, 1))[0],
        }
        self.enqueue(job, order, draw.choice((0, 0, 5)))

    def enqueue(self, job: str, order: dict[str, Any], priority: int = 0) -> None:
        sql = "SELECT id FROM supervisor.enqueue($1, $2::text::jsonb, NULL, NULL, $3)"
        try:
            rows = self._ask(sql, job, json.dumps(order), priority)
        except asyncpg.PostgresError as error:
            if not (error.sqlstate or "").startswith("TN"):
                raise
            return
        self.acknowledged.append(rows[0]["id"])
        self._world.note("client", "enqueued", run=rows[0]["id"], job=job, **order)

    def _ask(self, sql: str, *args: Any) -> Any:
        answer = self._world.execute("admin", sql, *args)
        self._world.network.say(answer.said)
        return answer.rows
