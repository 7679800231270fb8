"""The lease contracts of the domain: renditions to be made, and blobs to be collected.

Both are plain ones. The worker writes the lease's own columns and what an outcome fills; blobs, refs and
events it writes only through functions that know its claim.
"""

from typing import Final

from supervisor.lease import Backoff
from supervisor.plain_lease import plain_lease

RENDITIONS: Final = plain_lease(
    "media.rendition_jobs",
    {"source_ref_id": "bigint", "rendition": "text"},
    sets={"made_ref_id": "bigint"},
    backoff=Backoff(first_seconds=5, cap_seconds=600),
)
COLLECTIONS: Final = plain_lease(
    "media.collections",
    {"blob_hash": "text"},
    sets={"outcome": "text"},
    backoff=Backoff(first_seconds=30, cap_seconds=3600),
)
