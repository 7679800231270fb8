"""`/`: who leads, who works, how fast, and what needs attention.

Its figures are those of `/status`, out of the same cache: the two cannot disagree. Who leads is read anew: in
the seconds after a crash an old answer would be a false one.
"""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.attention import LATE_SECONDS, Unheard, concerns
from supervisor.console.figures import lags, throughput
from supervisor.console.kept import Kept
from supervisor.jobrun import STATES
from supervisor.store import Record

CHART_ROWS: Final = 20_000
CHART_SECONDS: Final = 5.0


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    async def read_outcomes() -> Sequence[Record]:
        return await replica.store.rows("see_outcomes", CHART_ROWS)

    outcomes = Kept(read_outcomes, CHART_SECONDS)

    @router.get("/")
    async def overview(request: Request) -> Response:
        status: dict[str, Any] = await replica.status()
        leader = await replica.store.row("show_leader")
        more = await replica.store.row("see_concerns")
        assert leader is not None  # noqa: S101  the row is never deleted
        assert more is not None  # noqa: S101  of a SELECT without FROM
        chart = throughput(map(dict, await outcomes.get()))
        failed = chart.totals.get("FAILED", 0) + chart.totals.get("TIMED_OUT", 0)
        renew_retry = replica.settings.timings.renew_retry
        return page.render(
            request,
            "overview.html",
            now=more["now"],
            figures=status,
            leader=leader,
            unheard=Unheard.of(dict(leader), renew_retry),
            states=STATES,
            concerns=concerns(status, dict(leader), dict(more), failed, renew_retry),
            chart=chart,
            late_seconds=LATE_SECONDS,
            lags=lags(status["lag_seconds"]),
            paused=set(more["paused_domains"]),
        )

    return router
