"""HTTP/1.1 as RFC 9112 has it, where h11 is lenient.

What two readers understand differently is how a request is smuggled past a proxy in front. So these are
errors, after which nothing more is read: a line that ends with a bare LF and one that is continued in the
next (in a head and in the trailers of a body), a Transfer-Encoding beside a Content-Length or in HTTP/1.0.
"""

import re
from typing import Final

import h11
from h11._receivebuffer import ReceiveBuffer

BLANK_LINE: Final = re.compile(rb"\n\r?\n")
BARE_LF_OR_FOLD: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")


class StrictConnection(h11.Connection):
    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._receive_buffer = _StrictBuffer()

    @property
    def has_data(self) -> bool:
        """Whether something has come that is not read yet."""
        return bool(self._receive_buffer)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and _is_ambiguous(event):
            raise h11.RemoteProtocolError("a length that two readers can understand differently")
        return event


class _StrictBuffer(ReceiveBuffer):
    """h11 takes the lines of a head and of trailers here, and what ended them is not to be seen later."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = BLANK_LINE.search(self._data, self._multiple_lines_search)
        if self._data[:1] == b"\n" or (end is not None and BARE_LF_OR_FOLD.search(self._data, 0, end.end())):
            raise h11.LocalProtocolError("a bare LF, or a line that is continued in the next one")
        return super().maybe_extract_lines()


def _is_ambiguous(request: h11.Request) -> bool:
    names = {name for name, _ in request.headers}
    return b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1")
