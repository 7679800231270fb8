"""Requests that name existing objects: one for each route that changes something, and how each is read.

A new route needs one here, in `API`, `CONSOLE` or `READS`; if it leaves no audit row, `UNAUDITED` says why.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from actors.dedup.leases import SCAN
from supervisor.lease_sql import render
from tests.integration.existing import Existing, Ids
from tests.support.pictures import encoded, quadrants

DAY: Final = "2026-11-16"
ASSETS: Final = ("", "/capture", "/dedup", "/media")
OTHER: Final = encoded("png", quadrants(64, 32))
PROGRAM: Final = {"domain": "command", "payload": {"argv": ["true"]}}
UPLOAD: Final = {"file": ("a.png", OTHER, "image/png")}
SLOT: Final = {"workspace": "w1", "entity": "post:9", "role": "gallery"}


@dataclass(frozen=True)
class Ask:
    """`path` fills the route's own path; the rest is the request's."""

    path: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    data: Mapping[str, Any] | None = None
    files: Any = None
    params: Mapping[str, Any] | None = None


Make = Callable[[Existing], Ask | Awaitable[Ask]]


async def new_scan(there: Existing, library: str = "photos") -> Any:
    """In place of the one that runs: there is one at a time."""
    await there.shelf.end(there.ids.scan)
    return await there.shelf.job("scan", library)


async def retryable(there: Existing) -> Ask:
    job = await new_scan(there)
    await there.shelf.begin(job)
    await there.value("UPDATE dedup.jobs SET status = 'retryable', claim_id = NULL WHERE id = $1", job)
    return Ask({"job_id": job})


async def stale(there: Existing) -> Ask:
    await there.value("UPDATE dedup.jobs SET lease_expires_at = now() WHERE id = $1", there.ids.scan)
    return Ask()


async def waiting_scan(there: Existing) -> Ask:
    await new_scan(there)
    return Ask(json={"worker_id": "elsewhere"})


async def claimed_scan(there: Existing, **more: Any) -> Ask:
    job = await new_scan(there)
    rows = await there.replica.work_store.rows(render(SCAN).claim, "elsewhere", 1, "dedup")
    owner = {"worker_id": "elsewhere", "claim_id": str(rows[0][2])}
    return Ask({"job_id": job}, json={**owner, **more})


async def no_jobs(there: Existing) -> Ask:
    await there.shelf.end(there.ids.scan)
    return Ask({"name": "photos"})


API: Final[Mapping[str, Make]] = {
    "POST capture/sessions": lambda _: Ask(data={"user": "9"}, files={"images": UPLOAD["file"]}),
    "POST capture/sessions/{session_id}/refuse": lambda there: Ask(
        {"session_id": there.ids.waiting}, json={"reason": "not mine"}
    ),
    "POST domains/{name}/pause": lambda _: Ask({"name": "command"}),
    "POST domains/{name}/resume": lambda _: Ask({"name": "capture"}),
    "POST events": lambda _: Ask(json={"type": "order.paid"}),
    "DELETE job-definitions/{name:path}": lambda _: Ask({"name": "scan"}),
    "PATCH job-definitions/{name:path}": lambda _: Ask({"name": "program"}, json={"enabled": False}),
    "PUT job-definitions/{name:path}": lambda _: Ask(
        {"name": "scan"}, json={"domain": "dedup", "action": "scan", "priority": 3}
    ),
    "POST job-definitions/{name:path}/trigger": lambda _: Ask({"name": "program"}),
    "POST job-definitions/{name:path}/trigger-many": lambda _: Ask({"name": "program"}, json={"runs": [{}]}),
    "POST jobs": lambda _: Ask(json={"kind": "thumbnail", "library": "photos"}),
    "POST jobs/recover-stale": stale,
    "POST jobs/{job_id}/cancel": lambda there: Ask({"job_id": there.ids.scan}),
    "POST jobs/{job_id}/reset": retryable,
    "POST jobs/scan-hash/claim": waiting_scan,
    "POST jobs/{job_id}/finish": lambda there: claimed_scan(there, status="completed"),
    "POST jobs/{job_id}/heartbeat": lambda there: claimed_scan(there, progress=0.5),
    "POST leadership/resign": lambda _: Ask(),
    "POST libraries": lambda _: Ask(json={"name": "more", "path": "more"}),
    "DELETE libraries/{name}": no_jobs,
    "POST maintenance/wal/checkpoint": lambda _: Ask(json={}),
    "POST media/blobs": lambda _: Ask(data={**SLOT, "actor": "user:7"}, files=UPLOAD),
    "POST media/refs": lambda there: Ask(json={**SLOT, "blob_hash": there.ids.blob, "actor": "user:7"}),
    "POST media/refs/move": lambda there: Ask(
        json={"ref_id": there.ids.ref, "position": 77, "actor": "user:7"}
    ),
    "DELETE media/refs/{ref_id}": lambda there: Ask({"ref_id": there.ids.ref}, params={"actor": "user:7"}),
    "POST runs/cancel": lambda there: Ask(json={"ids": [there.ids.pending]}),
    "POST runs/retry": lambda there: Ask(json={"ids": [there.ids.failed]}),
    "POST runs/{run_id}/cancel": lambda there: Ask({"run_id": there.ids.running}),
    "POST runs/{run_id}/retry": lambda there: Ask({"run_id": there.ids.failed}),
    "POST scm/items/{item_id}/attachments": lambda there: Ask(
        {"item_id": there.ids.item}, json={"kind": "log", "uri": there.ids.attached}
    ),
    "PUT settings/{name}": lambda _: Ask({"name": "reassign_after_seconds"}, json={"value": 90}),
    "POST thumbs/cleanup/group": lambda there: Ask(json={"group_key": there.ids.group, "delay_seconds": 60}),
    "POST thumbs/request": lambda there: Ask(json={"file_id": there.ids.file, "format": "jpeg"}),
    "POST workers/{worker_id}/drain": lambda _: Ask({"worker_id": "w2"}),
}

CONSOLE: Final[Mapping[str, Make]] = {
    "POST capture/sessions/{session_id}": lambda there: Ask(
        {"session_id": there.ids.waiting}, data={"do": "refuse", "reason": "not mine"}
    ),
    "POST dedup/libraries/{name}": lambda _: Ask({"name": "photos"}, data={"do": "scan"}),
    "POST domains": lambda _: Ask(data={"domain": "command", "do": "pause"}),
    "POST jobs/{name:path}": lambda _: Ask({"name": "program"}, data={"do": "trigger"}),
    "POST leadership": lambda _: Ask(data={"sure": "yes"}),
    "POST runs": lambda there: Ask(data={"do": "cancel", "run": str(there.ids.pending)}),
    "POST runs/{run_id}": lambda there: Ask({"run_id": there.ids.failed}, data={"do": "retry"}),
    "POST scm/repositories/{name}": lambda _: Ask({"name": "code"}, data={"do": "sync"}),
    "POST settings": lambda _: Ask(data={"name": "max_assignments", "value": "30"}),
    "POST workers": lambda _: Ask(data={"worker": "w2"}),
}

PROGRAMS: Final[Mapping[str, Make]] = {
    "DELETE job-definitions/{name:path}": lambda _: Ask({"name": "idle"}),
    "PUT job-definitions/{name:path}": lambda _: Ask({"name": "program"}, json={**PROGRAM, "priority": 3}),
}
"""What these routes do for role admin only."""

UNAUDITED: Final[Mapping[str, str]] = {
    "POST /api/v1/jobs/{job_id}/heartbeat": "keeps a lease; its claim stands in the audit",
    "POST /login": "makes a session, under the token that was typed: see the test of it",
    "POST /logout": "ends the asking browser's own session",
    "POST /theme": "sets a cookie",
}


READS: Final[Mapping[str, Callable[[Ids], str]]] = {
    "/api/v1/capture/sessions/{session_id}": lambda ids: f"/api/v1/capture/sessions/{ids.read}",
    "/api/v1/capture/sessions/{session_id}/images/{sequence}": lambda ids: (
        f"/api/v1/capture/sessions/{ids.read}/images/1"
    ),
    "/api/v1/duplicates/groups/{group_key}/files": lambda ids: f"/api/v1/duplicates/groups/{ids.group}/files",
    "/api/v1/job-definitions/{name:path}": lambda _: "/api/v1/job-definitions/program",
    "/api/v1/jobs/{job_id}": lambda ids: f"/api/v1/jobs/{ids.scan}",
    "/api/v1/libraries/{name}": lambda _: "/api/v1/libraries/photos",
    "/api/v1/libraries/{name}/sessions": lambda _: "/api/v1/libraries/photos/sessions",
    "/api/v1/media/blobs/{hash_}": lambda ids: f"/api/v1/media/blobs/{ids.blob}",
    "/api/v1/media/refs": lambda _: "/api/v1/media/refs?entity=post:7",
    "/api/v1/media/refs/{ref_id}": lambda ids: f"/api/v1/media/refs/{ids.ref}",
    "/api/v1/media/requests/{request_id}": lambda ids: f"/api/v1/media/requests/{ids.write}",
    "/api/v1/runs/{run_id}": lambda ids: f"/api/v1/runs/{ids.running}",
    "/api/v1/runs/{run_id}/logs": lambda ids: f"/api/v1/runs/{ids.running}/logs",
    "/api/v1/runs/{run_id}/why": lambda ids: f"/api/v1/runs/{ids.pending}/why",
    "/api/v1/scan-sessions/{session_id}": lambda ids: f"/api/v1/scan-sessions/{ids.walk}",
    "/api/v1/scan-sessions/{session_id}/errors": lambda ids: f"/api/v1/scan-sessions/{ids.walk}/errors",
    "/api/v1/schedules/{user}": lambda _: "/api/v1/schedules/7",
    "/api/v1/schedules/{user}/{day}": lambda _: f"/api/v1/schedules/7/{DAY}",
    "/api/v1/schedules/{user}/{day}/differences": lambda _: f"/api/v1/schedules/7/{DAY}/differences",
    "/api/v1/schedules/{user}/{day}/versions": lambda _: f"/api/v1/schedules/7/{DAY}/versions",
    "/api/v1/scm/evidence": lambda ids: f"/api/v1/scm/evidence?uri={ids.evidence}",
    "/api/v1/scm/evidence/content": lambda ids: f"/api/v1/scm/evidence/content?uri={ids.evidence}",
    "/api/v1/scm/evidence/verify": lambda ids: f"/api/v1/scm/evidence/verify?uri={ids.evidence}",
    "/api/v1/scm/repos/{name}": lambda _: "/api/v1/scm/repos/code",
    "/api/v1/scm/repos/{name}/evidence": lambda _: "/api/v1/scm/repos/code/evidence",
    "/api/v1/scm/runs/{run_id}": lambda ids: f"/api/v1/scm/runs/{ids.sync}",
    "/api/v1/thumbs/{key}": lambda ids: f"/api/v1/thumbs/{ids.thumb}",
    "/api/v1/thumbs/{key}/content": lambda ids: f"/api/v1/thumbs/{ids.thumb}/content",
    "/capture/sessions/{session_id}": lambda ids: f"/capture/sessions/{ids.read}",
    "/dedup/duplicates/{key}": lambda ids: f"/dedup/duplicates/{ids.group}",
    "/dedup/libraries/{name}": lambda _: "/dedup/libraries/photos",
    "/dedup/libraries/{name}/errors": lambda _: "/dedup/libraries/photos/errors",
    "/jobs/{name:path}": lambda _: "/jobs/program",
    "/media/blobs/{hash_}": lambda ids: f"/media/blobs/{ids.blob}",
    "/media/entity": lambda _: "/media/entity?entity=post:7",
    "/media/requests": lambda ids: f"/media/requests?id={ids.write}",
    "/media/requests/{request_id}": lambda ids: f"/media/requests/{ids.write}",
    "/runs/{run_id}": lambda ids: f"/runs/{ids.failed}",
    "/scm/evidence": lambda ids: f"/scm/evidence?uri={ids.evidence}",
    "/scm/repositories/{name}": lambda _: "/scm/repositories/code",
    "/scm/repositories/{name}/{kind}": lambda _: "/scm/repositories/code/revisions",
}
"""How to read what exists, where the path or the query has to name it."""

NOWHERE: Final = {"/{path:path}", *(f"{domain}/static/{{digest}}/{{name}}" for domain in ASSETS)}
"""Files of a release and the page that is not there: they show no object."""
