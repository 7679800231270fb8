"""The media domain: renditions to be made, blobs to be collected."""

from collections.abc import Sequence

from actors.media import leases as media
from supervisor.lease import Lease
from tests.conformance.contracts.contract import CREATED, Contract

_RENDITION = (
    "INSERT INTO media.rendition_jobs (source_ref_id, rendition{}) "
    "SELECT (random() * 1e15)::bigint, 'small'{} FROM generate_series(1, {})"
)
_COLLECTION = (
    "INSERT INTO media.collections (blob_hash{}) SELECT gen_random_uuid()::text{} FROM generate_series(1, {})"
)


def _plain(lease: Lease, insert: str) -> Contract:
    return Contract(
        lease,
        insert=insert.format(", due_at", f", {CREATED}", "1"),
        finished=insert.format(", status, claim_id", ", 'done', gen_random_uuid()", "$1::integer"),
        others=[
            insert.format(", due_at", ", 'infinity'::timestamptz", "1"),
            insert.format(", status", ", 'failed'", "1"),
        ],
    )


MEDIA: Sequence[Contract] = (_plain(media.RENDITIONS, _RENDITION), _plain(media.COLLECTIONS, _COLLECTION))
