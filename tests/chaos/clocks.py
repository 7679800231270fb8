"""Clocks that can be set: libfaketime reads an offset, and a rate, from a file of the host's.

CLOCK_MONOTONIC and CLOCK_BOOTTIME stay true unless a host asks for faked ones (then their rate changes with
the file's). Commands are started by the warden, which passes no LD_PRELOAD on: they see the true time.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.chaos.layer import NotHere

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def environment(home: Path, host: str, clocks: Mapping[str, bool]) -> dict[str, str]:
    if host not in clocks:
        return {}
    if not LIBRARIES:
        raise NotHere("libfaketime is not installed; on Debian: apt-get install faketime")
    set_clock(home, host, "+0")
    faked = {} if clocks[host] else {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(_file(home, host)),
        "FAKETIME_NO_CACHE": "1",
        **faked,
    }


def set_clock(home: Path, host: str, to: str) -> None:
    """As faketime writes it: `+3600` (seconds), `-3600`, `+0 x0.9` (and the rate)."""
    draft = _file(home, host).with_suffix(".new")
    draft.write_text(f"{to}\n")
    draft.replace(_file(home, host))


def _file(home: Path, host: str) -> Path:
    return home / f"clock-{host}"
