"""The task of a chamber: one thumbnail, from a descriptor to a descriptor. Never loaded by a replica.

Request: {"format": jpeg | webp, "max_dimension": 16..2048, "quality"?: 1..100}; descriptors: source, output.
Result: {"width", "height", "bytes_size", "media_type", "source_type", "source_width", "source_height"}, the
source's size as it is stored in the file.
"""

import os
from typing import Any

from actors.dedup.render import video
from actors.dedup.render.sniff import sniff
from actors.dedup.render.verdicts import UNSUPPORTED_TYPE
from supervisor.images import decode
from supervisor.images.encode import encode, shrink, write
from supervisor.images.failure import failed
from supervisor.images.sniff import HEAD_BYTES

DEFAULT_QUALITY = 80

decode.set_up()
video.set_up()


def render(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    source, output = handles
    kind = sniff(os.pread(source, HEAD_BYTES, 0))
    if kind is None:
        raise failed(UNSUPPORTED_TYPE, "this kind of file has no thumbnail")
    max_dimension = int(request["max_dimension"])
    if kind.media_type == "image":
        picture, width, height = decode.open_image(kind.name, source, max_dimension)
    else:
        picture, width, height = video.open_frame(kind.name, source)
    small = shrink(picture, max_dimension)
    data = encode(small, request["format"], int(request.get("quality", DEFAULT_QUALITY)))
    write(output, data)
    return {
        "width": small.width,
        "height": small.height,
        "bytes_size": len(data),
        "media_type": kind.media_type,
        "source_type": kind.name,
        "source_width": width,
        "source_height": height,
    }
