"""A place on a disk: what is flushed in memory costs nothing and says nothing."""

import tempfile
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mounts")
IN_MEMORY: Final = ("tmpfs", "ramfs")


def on_disk() -> tuple[Path, str]:
    """A folder for temporary files, and the kind of its file system; one in memory if there is no other."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]  # noqa: S108  mkdtemp makes the name
    kinds = [(place, _file_system(place.resolve())) for place in places if place.is_dir()]
    return next((one for one in kinds if one[1] not in IN_MEMORY), kinds[0])


def _file_system(place: Path) -> str:
    """That of the mount nearest to it, and of several at one place the last."""
    mounts = [line.split()[1:3] for line in MOUNTS.read_text().splitlines()]
    around = [(len(Path(at).parts), kind) for at, kind in mounts if place.is_relative_to(at)]
    return max(reversed(around), key=lambda mount: mount[0])[1]
