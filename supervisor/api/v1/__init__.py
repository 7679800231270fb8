"""The API of the supervisor itself: `/api/v1` without the domains' routes.

Listings are by key (paging.py) and cost the same however long the history is. Actions go through
`supervisor.operations`, which audits them under the name of who asks. Answers carry other people's JSON as it
is stored (`supervisor.sight`); the models only document it. No SQL here.
"""

from fastapi import APIRouter

from supervisor.api.v1 import events, evidence, fleet, governance, job_definitions, run_logs, runs, stream
from supervisor.api.view import ReplicaView


def routes(replica: ReplicaView) -> APIRouter:
    router = APIRouter()
    for noun in (runs, run_logs, job_definitions, fleet, events, governance, evidence, stream):
        router.include_router(noun.routes(replica))
    return router
