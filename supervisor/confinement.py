"""What commands are kept from: the rights of another user, the replica's files, the processes of others.

As another user, a command reads and signals what that user can, and nothing of the replica. As the replica's
own user it is kept by Landlock, where the kernel has it, from the replica's files, from changing its program,
and from signalling or tracing other processes. In both cases no program gains rights by being executed.

NOT guaranteed: with the replica's own user, that nothing of a command is run later by somebody else. It may
change what that user's shell reads when it starts, and much else. And commands of one replica share a user:
they see each other's arguments, and as another user than the replica's they can end each other.
"""

import os
import site
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from supervisor import landlock, umask
from supervisor.command_user import CommandUser, command_user
from supervisor.config import TOML_FILE, Settings


class ClosedPlaces:
    """A Landlock ruleset under which everything but these places can be used, and some can be read only.

    Rules only open, and they open all that is beneath: each directory on the way to such a place is left
    without one, and each of its entries gets its own. So a file that appears *directly* in such a directory
    is closed until the ruleset is made again, which happens when one of these directories has changed.
    """

    def __init__(self, places: Sequence[Path], read_only: Sequence[Path] = ()) -> None:
        self._places = frozenset(place.resolve() for place in places)
        self._read_only = frozenset(place.resolve() for place in read_only)
        self._above = sorted({above for place in self._places | self._read_only for above in place.parents})
        self._lock = threading.Lock()
        self._made: int | None = None
        self._made_of: list[int] = []

    def ruleset(self) -> int:
        """Return a descriptor for the caller to close. Reads directories if some have changed."""
        with self._lock:
            now = [_changed(directory) for directory in self._above]
            if self._made is None or now != self._made_of:
                made = landlock.make_ruleset(self._rules(), scoped=landlock.SCOPE_SIGNALS)
                if self._made is not None:
                    os.close(self._made)
                self._made, self._made_of = made, now
            return os.dup(self._made)

    def surrounds(self, directory: Path) -> bool:
        """Return whether files that are made in this directory are closed at first."""
        return directory.resolve() in self._above

    def _rules(self) -> Iterator[tuple[str, int]]:
        every, reading = landlock.all_rights(), landlock.READ_FILE | landlock.READ_DIR | landlock.EXECUTE
        yield "/", landlock.READ_DIR  # names are no secret, and `ls` is expected to work
        for directory in self._above:
            inside = not self._read_only.isdisjoint((directory, *directory.parents))
            for entry in _entries(directory):
                path = Path(entry)
                if path not in self._places and path not in self._above:
                    yield entry, reading if inside or path in self._read_only else every


@dataclass(frozen=True, slots=True)
class Confinement:
    """How commands are started. `closed` is None without Landlock, and where another user makes up for it."""

    confined: bool = False
    user: CommandUser | None = None
    closed: ClosedPlaces | None = None
    umask: int | None = None
    """For new files; None: they are closed to other users, as the replica's own are."""

    def as_spec(self) -> dict[str, Any]:
        """Return what the launcher has to know; the ruleset goes as a descriptor."""
        user = self.user and [self.user.uid, self.user.gid, self.user.groups]
        return {"confined": self.confined, "user": user, "umask": self.umask}

    @property
    def watertight(self) -> bool:
        """Whether commands can neither read what the replica's user can nor end its processes."""
        return self.user is not None or (self.closed is not None and landlock.abi() >= landlock.SIGNALS_ABI)


UNCONFINED = Confinement()


@cache
def confinement(settings: Settings) -> Confinement:
    """Return what these settings and this machine make of it; raise BadSettings if they do not agree."""
    user, mask = command_user(settings), umask.started_with()
    if not settings.command_confined:
        return Confinement(user=user, umask=mask)
    if user is not None or os.geteuid() == 0 or landlock.abi() == 0:
        return Confinement(confined=True, user=user, umask=mask)
    # what may be made later is closed too: it would be believed by the next replica
    places = [settings.state_dir, Path(TOML_FILE)]
    return Confinement(confined=True, closed=ClosedPlaces(places, _programs()), umask=mask)


def _programs() -> list[Path]:
    """Return the places that replicas take code and programs from, where this user may change them."""
    packages = [Path(__file__).parents[1] / name for name in ("supervisor", "actors", "schemas")]
    places = [Path(sys.prefix), Path(sys.base_prefix), *packages, *map(Path, filter(None, sys.path))]
    # with the start file of tenure, and git, svn and the like
    places += [Path(place) for place in os.get_exec_path() if place.startswith("/")]
    if site.ENABLE_USER_SITE:
        places.append(Path(site.getusersitepackages()))
    return [place for place in places if _may_change(place)]


def _may_change(place: Path) -> bool:
    """Whether this user may write there, or perhaps make it."""
    try:
        return not place.exists() or os.access(place, os.W_OK)
    except PermissionError:  # PATH of another user: what is above cannot even be looked into
        return False


def _changed(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _entries(directory: Path) -> Iterator[str]:
    """Yield all but links: what they lead to has its own rule, or is closed."""
    try:
        with os.scandir(directory) as entries:
            yield from (entry.path for entry in entries if not entry.is_symlink())
    except OSError:
        return
