"""One frame of a video: the first good one from a tenth of its length on, at most ten seconds in.

The demuxer is fixed by the sniffed type, and nothing that names other files is among them: playlists and
lists of parts cannot be opened, external tracks are not followed, and no protocol may be opened at all.
"""

import os
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import av.error
import av.logging
import pyvips
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from actors.dedup.render.verdicts import VIDEO_FAILED
from supervisor.images.decode import check_area, from_rows
from supervisor.images.failure import failed

MAX_PIXELS = 8192 * 8192
MAX_SECONDS_IN = 10.0
MAX_PACKETS = 2000
MAX_FRAMES = 8
# Of 255: what varies less is black, white or a fade.
DULL_DEVIATION = 6.0

DEMUXERS = {
    "mp4": "mov", "mov": "mov", "mkv": "matroska", "webm": "matroska", "avi": "avi", "mpeg": "mpeg",
    "mpegvideo": "mpegvideo", "mpegts": "mpegts", "flv": "flv", "ogg": "ogg", "asf": "asf",
}  # fmt: skip
CODECS = (
    "h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "mpeg4", "mpeg1video", "mpeg2video", "mpegvideo", "h263",
    "h263p", "h263i", "flv", "flv1", "theora", "mjpeg", "mjpegb", "msmpeg4", "msmpeg4v1", "msmpeg4v2",
    "msmpeg4v3", "wmv1", "wmv2", "wmv3", "vc1", "prores", "dnxhd", "dvvideo", "rawvideo", "ffv1", "huffyuv",
    "cinepak", "svq1", "svq3", "qtrle", "rv30", "rv40", "vp6", "vp6f",
)  # fmt: skip
OPTIONS = {
    "protocol_whitelist": "none",
    "codec_whitelist": ",".join(CODECS),
    "probesize": "5000000",
    "analyzeduration": "5000000",
    "max_streams": "64",
}
QUARTER_TURNS = {0: "d0", 90: "d90", 180: "d180", 270: "d270"}


def set_up() -> None:
    """Once in a process."""
    av.logging.set_level(None)


def open_frame(kind: str, handle: int) -> tuple[pyvips.Image, int, int]:
    """The frame as it is to be seen, with its width and height."""
    os.lseek(handle, 0, os.SEEK_SET)
    demuxer = DEMUXERS[kind]
    try:
        with os.fdopen(handle, "rb", buffering=0, closefd=False) as file:
            options = {**OPTIONS, "format_whitelist": demuxer}
            with av.open(file, "r", format=demuxer, options=options, metadata_errors="replace") as container:
                image = _best(container)
    except (av.error.FFmpegError, OSError, ValueError, pyvips.Error) as error:
        raise failed(VIDEO_FAILED, "no frame of the video could be read", error) from error
    return image, image.width, image.height


def _best(container: InputContainer) -> pyvips.Image:
    stream = _stream(container)
    _go_to_start(container, stream)
    image: pyvips.Image | None = None
    for frame in _frames(container, stream):
        image = _picture(frame, stream.sample_aspect_ratio)
        if image.deviate() > DULL_DEVIATION:
            break
    if image is None:
        raise failed(VIDEO_FAILED, "the video has no frame that can be decoded")
    return image


def _stream(container: InputContainer) -> VideoStream:
    for stream in container.streams.video:
        if stream.disposition & av.stream.Disposition.attached_pic or stream.codec_context is None:
            continue
        codec = stream.codec_context
        if codec.name not in CODECS:
            raise failed(VIDEO_FAILED, "the video is in a coding that is not decoded here")
        if codec.width or codec.height:
            check_area(codec.width, codec.height, MAX_PIXELS)
        codec.thread_count = 1
        codec.skip_frame = "NONKEY"
        codec.options = {"max_pixels": str(MAX_PIXELS)}
        return stream
    raise failed(VIDEO_FAILED, "there is no picture in this file")


def _go_to_start(container: InputContainer, stream: VideoStream) -> None:
    seconds = _duration_seconds(container, stream)
    if seconds <= 0:
        return
    begin = (container.start_time or 0) / av.time_base
    try:
        container.seek(int((begin + min(seconds * 0.1, MAX_SECONDS_IN)) * av.time_base))
    except (av.error.FFmpegError, OSError, OverflowError):
        container.seek(0)


def _duration_seconds(container: InputContainer, stream: VideoStream) -> float:
    if container.duration:
        return container.duration / av.time_base
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return 0.0


def _frames(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Up to MAX_FRAMES key frames; what is damaged in between is passed over."""
    found = 0
    for count, packet in enumerate(container.demux(stream)):
        try:
            frames: list[Any] = packet.decode()
        except av.error.InvalidDataError:
            frames = []
        for frame in frames:
            yield frame
            found += 1
        if found >= MAX_FRAMES or count >= MAX_PACKETS:
            return


def _picture(frame: VideoFrame, aspect: Fraction | None) -> pyvips.Image:
    # Pixels need not be square.
    width = round(frame.width * aspect) if aspect and Fraction(1, 8) < aspect < 8 else frame.width
    check_area(frame.width, frame.height, MAX_PIXELS)
    check_area(width, frame.height, MAX_PIXELS)
    flat = frame.reformat(width=width, format="rgb24")
    plane = flat.planes[0]
    image = from_rows(bytes(plane), flat.width, flat.height, 3, plane.line_size)
    # FFmpeg counts against the clock and libvips with it.
    turn = QUARTER_TURNS.get(round(-frame.rotation / 90) * 90 % 360, "d0")
    return image if turn == "d0" else image.rot(turn)
