"""The task of a chamber: one rendition, from a descriptor to a descriptor. Never loaded by a replica.

Request: {"format": webp | jpeg, "max_dimension", "quality"}; descriptors: source, output. Result: {"width",
"height", "bytes_size"}.
"""

import os
from typing import Any

from supervisor.images import decode
from supervisor.images.encode import encode, shrink, write
from supervisor.images.failure import failed
from supervisor.images.sniff import HEAD_BYTES, sniff

decode.set_up()


def render(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    source, output = handles
    kind = sniff(os.pread(source, HEAD_BYTES, 0))
    if kind is None:
        raise failed("TYPE_NOT_RENDERED", "the content is no picture of a kind that is rendered")
    size = int(request["max_dimension"])
    picture, _width, _height = decode.open_image(kind, source, size)
    small = shrink(picture, size)
    data = encode(small, request["format"], int(request["quality"]))
    write(output, data)
    return {"width": small.width, "height": small.height, "bytes_size": len(data)}
