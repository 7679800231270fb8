"""Requests that two readers could understand differently are errors to ours."""

from typing import Any

import h11
import pytest

from supervisor.api.strict_http import StrictConnection

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"


def read(data: bytes, piece: int) -> list[Any]:
    """Everything up to the end of the request, with so many bytes at a time."""
    connection = StrictConnection(1024)
    events: list[Any] = []
    for start in range(0, len(data), piece):
        connection.receive_data(data[start : start + piece])
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            events.append(type(event))
    return events


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        POST + b"Content-Length: 5\r\n\r\nhello",
        POST + b"Content-Length: 5\r\n\r\n\n\n\n\n\n",
        POST + b"Content-Length: 4\r\n\r\n\r\n x",
        CHUNKED + b"\r\n",
        CHUNKED + b"Trailer: 1\r\n\r\n",
        b"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
    ],
)
def test_what_is_clear_is_read(data: bytes, piece: int) -> None:
    events = read(data, piece)
    assert (events[0], events[-1]) == (h11.Request, h11.EndOfMessage)


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Folded: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Folded: a\r\n\tb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n \r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\nX-Other: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED + b"\n",
        CHUNKED + b"Trailer: 1\n\r\n",
        CHUNKED + b"Trailer: 1\r\n b\r\n\r\n",
        CHUNKED + b"Trailer: 1\r\n\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n" + b"x" * 2000,
    ],
)
def test_what_is_ambiguous_is_an_error(data: bytes, piece: int) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read(data, piece)


def test_it_says_whether_the_next_head_has_begun() -> None:
    connection = StrictConnection(1024)
    assert not connection.has_data
    connection.receive_data(b"G")
    connection.next_event()
    assert connection.has_data
