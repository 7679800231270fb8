"""The files of one thumbnail: the original, and the output under another name until it is published.

Everything is opened beneath its root, the original's and the thumbnails'. The original is only read. The
output stands under the state's directory, at a place its key decides, and is whole or not there. A file that
is not what it was when the thumbnail was asked for is refused: its new state has another key.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from actors.dedup.confine import Beneath, FileTrouble, library_root, split
from supervisor import Claim
from supervisor.config import Settings
from supervisor.store import Record


@dataclass(slots=True)
class Canvas:
    """Whoever opened it discards it, published or not."""

    source: int
    output: int
    directory: Beneath
    draft: bytes
    name: bytes
    published: bool = False

    def sync(self) -> None:
        os.fsync(self.output)

    def rename(self) -> None:
        os.rename(self.draft, self.name, src_dir_fd=self.directory.fd, dst_dir_fd=self.directory.fd)
        self.published = True

    def sync_directory(self) -> None:
        os.fsync(self.directory.fd)

    def discard(self) -> None:
        os.close(self.source)
        os.close(self.output)
        if not self.published:
            with suppress(FileNotFoundError):
                os.unlink(self.draft, dir_fd=self.directory.fd)
        self.directory.close()


def publish(canvases: Sequence[Canvas]) -> list[Canvas | Exception]:
    """Blocking. A step for all before the next: a commit of the file system's journal serves more than one.

    No name is given before its content is on the disk.
    """
    results: dict[int, Canvas | Exception] = dict(enumerate(canvases))
    for step in (Canvas.sync, Canvas.rename, Canvas.sync_directory):
        for number, canvas in results.items():
            if isinstance(canvas, Canvas):
                results[number] = _done(step, canvas)
    return list(results.values())


def _done(step: Callable[[Canvas], None], canvas: Canvas) -> Canvas | Exception:
    try:
        step(canvas)
    except OSError as error:
        return error
    return canvas


def open_all(settings: Settings, wanted: Iterable[tuple[Claim, Record]]) -> list[Canvas | Exception]:
    """Blocking. What cannot be opened is its own trouble."""
    opened: list[Canvas | Exception] = []
    for claim, source in wanted:
        try:
            opened.append(open_canvas(settings, source, claim))
        except Exception as error:  # noqa: BLE001  each is told its own, and nothing opened is forgotten
            opened.append(error)
    return opened


def open_canvas(settings: Settings, source: Record, claim: Claim) -> Canvas:
    """Blocking."""
    wanted = claim.payload
    if settings.libraries_dir is None:
        raise FileTrouble(path="TENURE_LIBRARIES_DIR", code="LIBRARIES_DIR_UNSET")
    with library_root(settings.libraries_dir, source["root_path"]) as root:
        handle, facts = root.open_regular(source["relative_path"])
    try:
        _require_unchanged(facts, wanted["source_size"], wanted["source_mtime_ns"])
        return _with_output(thumbs_dir(settings), handle, wanted["output_relpath"], claim.claim_id)
    except BaseException:
        os.close(handle)
        raise


def _require_unchanged(facts: os.stat_result, size: int, mtime_ns: int) -> None:
    if (facts.st_size, facts.st_mtime_ns) != (size, mtime_ns):
        raise FileTrouble(path="original", code="SOURCE_CHANGED")


def _with_output(thumbs: Path, source: int, relpath: str, token: UUID) -> Canvas:
    thumbs.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent, name = split(relpath)
    with Beneath(os.open(thumbs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        directory = root.make_directories(parent)
    draft = b".%s-%s" % (name, str(token).encode())
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        output = os.open(draft, flags, 0o600, dir_fd=directory.fd)
    except BaseException:
        directory.close()
        raise
    return Canvas(source, output, directory, draft, name)


def thumbs_dir(settings: Settings) -> Path:
    return settings.thumbs_dir or settings.state_dir / "thumbs"
