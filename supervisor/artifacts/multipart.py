"""Large objects: uploads in parts, and copies within the bucket. An upload that does not end is aborted.

Each part carries its own digests, which the server compares; what it made of them all is known by its ETag,
the MD5 of the parts' MD5s.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

import anyio

from supervisor.artifacts.errors import ArtifactError, ArtifactExists, ArtifactMissing, StoreFailed
from supervisor.artifacts.head import understood
from supervisor.artifacts.parcel import Parcel
from supervisor.artifacts.s3 import Bucket, parse, text_of
from supervisor.artifacts.signature import encode_path

MULTIPART_BYTES: Final = 64 * 1024 * 1024
COPY_BYTES: Final = 5 * 1024**3
PARTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    number: int
    etag: str
    sha256: str | None = None


class Multipart:
    """`part_bytes` is both the size from which on an upload is divided, and that of its parts."""

    def __init__(self, bucket: Bucket, part_bytes: int, copy_bytes: int) -> None:
        self._bucket = bucket
        self._part_bytes = part_bytes
        self._copy_bytes = copy_bytes

    def needed(self, size: int) -> bool:
        return size > self._part_bytes

    async def upload(
        self, key: str, parcel: Parcel, headers: Mapping[str, str], condition: Mapping[str, str]
    ) -> str | None:
        """Its ETag where that proves the content; ArtifactExists where the condition does not hold."""
        upload = await self._begin(key, {**headers, "x-amz-checksum-algorithm": "SHA256"})
        try:
            parts: list[Part] = []
            digests = b""
            async for piece in parcel.slices(_part_size(parcel.measure.size, self._part_bytes)):
                query = [("partNumber", str(len(parts) + 1)), ("uploadId", upload)]
                sums = {
                    "content-md5": piece.measure.md5_base64,
                    "x-amz-checksum-sha256": piece.measure.sha256_base64,
                }
                answer = await self._bucket.send("PUT", key, query=query, headers=sums, body=piece)
                parts.append(Part(len(parts) + 1, answer.headers["etag"], piece.measure.sha256_base64))
                digests += bytes.fromhex(piece.measure.md5)
            etag = await self._complete(key, upload, parts, condition)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._abort(key, upload)
            raise
        expected = f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
        return etag if etag == expected else None

    async def copy(self, source: str, target: str, size: int, etag: str, headers: Mapping[str, str]) -> None:
        """Also onto itself, which makes it young."""
        origin = {
            "x-amz-copy-source": encode_path(f"/{self._bucket.target.bucket}/{source}"),
            "x-amz-copy-source-if-match": f'"{etag}"',
        }
        if size <= self._copy_bytes:
            directive = {"x-amz-metadata-directive": "REPLACE"}
            answer = await self._bucket.send("PUT", target, headers={**headers, **origin, **directive})
            _require_success(target, parse(answer))
            return
        upload = await self._begin(target, headers)
        try:
            parts: list[Part] = []
            step = _part_size(size, self._copy_bytes)
            for start in range(0, size, step):
                query = [("partNumber", str(len(parts) + 1)), ("uploadId", upload)]
                place = {"x-amz-copy-source-range": f"bytes={start}-{min(start + step, size) - 1}"}
                answer = await self._bucket.send("PUT", target, query=query, headers={**origin, **place})
                parts.append(Part(len(parts) + 1, text_of(parse(answer), "ETag")))
            await self._complete(target, upload, parts, {})
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._abort(target, upload)
            raise

    async def abort_older(self, prefix: str, before: datetime) -> int:
        """Uploads that nobody ends any more."""
        aborted = 0
        query = {"uploads": "", "prefix": prefix, "encoding-type": "url"}
        while True:
            answer = await self._bucket.send("GET", "", query=list(query.items()))
            page = parse(answer)
            for item in page.iterfind("{*}Upload"):
                with understood(answer):
                    begun_at = datetime.fromisoformat(text_of(item, "Initiated"))
                if begun_at < before:
                    await self._abort(unquote_plus(text_of(item, "Key")), text_of(item, "UploadId"))
                    aborted += 1
            if text_of(page, "IsTruncated") != "true":
                return aborted
            query["key-marker"] = unquote_plus(text_of(page, "NextKeyMarker"))
            query["upload-id-marker"] = text_of(page, "NextUploadIdMarker")

    async def _begin(self, key: str, headers: Mapping[str, str]) -> str:
        answer = await self._bucket.send("POST", key, query=[("uploads", "")], headers=headers)
        return text_of(parse(answer), "UploadId")

    async def _complete(
        self, key: str, upload: str, parts: Sequence[Part], condition: Mapping[str, str]
    ) -> str:
        body = ET.Element("CompleteMultipartUpload")
        for part in parts:
            item = ET.SubElement(body, "Part")
            ET.SubElement(item, "PartNumber").text = str(part.number)
            ET.SubElement(item, "ETag").text = part.etag
            if part.sha256 is not None:
                ET.SubElement(item, "ChecksumSHA256").text = part.sha256
        answer = await self._bucket.send(
            "POST", key, query=[("uploadId", upload)], headers=condition, body=ET.tostring(body)
        )
        result = parse(answer)
        _require_success(key, result)
        return text_of(result, "ETag").strip('"')

    async def _abort(self, key: str, upload: str) -> None:
        try:
            await self._bucket.send("DELETE", key, query=[("uploadId", upload)])
        except ArtifactMissing:
            return
        except ArtifactError:
            # `sweep` finds it
            return


def _part_size(size: int, least: int) -> int:
    return max(least, -(-size // PARTS))


def _require_success(key: str, result: ET.Element) -> None:
    """An answer of 200 can be an error still: the server began to answer before it was done."""
    if not result.tag.endswith("Error"):
        return
    code = text_of(result, "Code")
    if code == "PreconditionFailed":
        raise ArtifactExists(key=key)
    raise StoreFailed(path=key, what=f"{code} after it had been accepted")
