"""A picture made small: no larger than its source, upright, in sRGB, without metadata; for JPEG on white."""

import os

import pyvips

from supervisor.images.failure import DECODE_FAILED, ENCODE_FAILED, failed


def shrink(picture: pyvips.Image, max_dimension: int) -> pyvips.Image:
    """Here the source is decoded: libvips computes nothing before it must."""
    # To ask for sRGB where there is no profile to come from costs a third of the whole, and changes nothing.
    profile = {"export_profile": "srgb"} if picture.get_typeof("icc-profile-data") else {}
    try:
        return picture.thumbnail_image(
            max_dimension, height=max_dimension, size="down", **profile
        ).copy_memory()
    except pyvips.Error as error:
        raise failed(DECODE_FAILED, "the picture is damaged or not readable", error) from error


def encode(small: pyvips.Image, form: str, quality: int) -> bytes:
    try:
        if form == "webp":
            return bytes(small.webpsave_buffer(Q=quality, keep="none"))
        if small.hasalpha():
            small = small.flatten(background=255)
        return bytes(small.jpegsave_buffer(Q=quality, keep="none", optimize_coding=True))
    except pyvips.Error as error:
        raise failed(ENCODE_FAILED, "the picture could not be made small", error) from error


def write(output: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        os.lseek(output, 0, os.SEEK_SET)
        os.ftruncate(output, 0)
        while rest:
            rest = rest[os.write(output, rest) :]
    except OSError as error:
        raise failed(ENCODE_FAILED, "the small picture could not be written", error) from error
