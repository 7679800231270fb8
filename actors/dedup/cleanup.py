"""Removes the thumbnails of a group: the file first, its row after.

A job that was cut therefore leaves rows without a file, which the next attempt removes, and never a file that
no row names. Only names of the form that thumbnails are written under (`ab/cd/<key>.jpg`) are unlinked, from
directories opened beneath TENURE_THUMBS_DIR without following a link: whatever stands in the table, an
original cannot be reached. What is refused or cannot be unlinked keeps its row and fails the job, the others
go on. A file that is gone already is no failure.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from actors.dedup.confine import Beneath, FileTrouble, split
from actors.dedup.trouble import code_of
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask, ask_one
from supervisor.threads import in_thread

PAGE: Final = 500
NAMED: Final = 10
OUTPUT: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}\.(jpg|webp)")

Output = tuple[int, str]  # thumbnail, output_relpath


async def handle(claim: Claim, tools: Tools) -> Outcome:
    settings, store = tools.place.settings, tools.place.store
    thumbs = settings.thumbs_dir or settings.state_dir / "thumbs"
    removed, kept = 0, dict[int, str]()
    while True:
        rows = await ask(store, "read_cleanup", claim.key, claim.claim_id, PAGE + len(kept))
        page = [(row["id"], row["output_relpath"]) for row in rows if row["id"] not in kept]
        if not page:
            break
        faults = await in_thread(partial(unlink_outputs, thumbs, page))
        kept |= {thumbnail: code for thumbnail, code in faults.items() if code is not None}
        gone = [thumbnail for thumbnail, code in faults.items() if code is None]
        removed += await ask_one(store, "remove_thumbnails", claim.key, claim.claim_id, gone)
    if kept:
        return Retry("THUMB_CLEANUP_FAILED", f"{removed} thumbnails removed; not removed: {_told(kept)}")
    return Done()


def unlink_outputs(
    thumbs: Path, page: Sequence[Output], should_stop: Callable[[], bool]
) -> dict[int, str | None]:
    """Of each thumbnail whose turn came: None where its file is not there any more, else why it still is."""
    try:
        fd = os.open(thumbs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {thumbnail: None if OUTPUT.fullmatch(path) else "REFUSED" for thumbnail, path in page}
    except OSError as error:
        return {thumbnail: code_of(error) for thumbnail, _ in page}
    answers: dict[int, str | None] = {}
    with Beneath(fd) as root:
        for thumbnail, path in page:
            if should_stop():
                break
            answers[thumbnail] = _unlink(root, path)
    return answers


def _unlink(root: Beneath, path: str) -> str | None:
    if not OUTPUT.fullmatch(path):
        return "REFUSED"
    parent, name = split(path)
    try:
        with root.open_directory(parent) as directory:
            os.unlink(name, dir_fd=directory.fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        return code_of(error)
    except FileTrouble as error:
        return None if error.code == "NOT_FOUND" else error.code
    return None


def _told(kept: dict[int, str]) -> str:
    """How many for which reason, and some of them by number; a path out of the table is not repeated."""
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(Counter(kept.values()).items()))
    some = ", ".join(str(thumbnail) for thumbnail in sorted(kept)[:NAMED])
    return f"{reasons} (thumbnails {some}{', ...' if len(kept) > NAMED else ''})"
