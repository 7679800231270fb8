"""The domains that ship with Tenure. A new actor is one line in ROSTER."""

from actors import capture, command, dedup, media, scm
from supervisor import Actor
from supervisor.domain import Domain

ROSTER: tuple[Actor, ...] = (
    command.ACTOR,
    dedup.RUNS,
    dedup.SCAN,
    dedup.HASH,
    dedup.FILES,
    dedup.DELETE,
    dedup.THUMBNAIL_JOB,
    dedup.THUMBNAILS,
    dedup.CLEANUP,
    dedup.WAL,
    scm.RUNS,
    scm.SVN,
    scm.GIT,
    scm.MERGE_REQUESTS,
    scm.REVIEWS,
    media.RENDITIONS,
    media.COLLECTIONS,
    capture.SESSIONS,
)

DOMAINS: tuple[Domain, ...] = (command.DOMAIN, dedup.DOMAIN, scm.DOMAIN, media.DOMAIN, capture.DOMAIN)
"""What domains have besides actors: routes, commands, duties of the leader."""
