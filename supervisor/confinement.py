"""What commands are kept from: the rights of another user, the replica's files, the processes of others.

As another user, a command reads and signals what that user can, and nothing of the replica. As the replica's
own user it is kept from the replica's files, and from signalling or tracing other processes, where the kernel
has Landlock (`watertight`). In both cases no program gains rights by being executed.

NOT guaranteed: commands of one replica share a user, and can read and signal each other where they are not
kept apart by Landlock.
"""

import os
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
    """A Landlock ruleset under which everything but these places can be used.

    Rules only open, and they open all that is beneath: each directory on the way to a closed place is left
    without one, and each of its entries gets its own. So a file that appears *directly* in such a directory
    is closed until the ruleset is made again, which happens when one of these directories has changed.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = frozenset(place.resolve() for place in places)
        self._above = sorted({above for place in self._places for above in place.parents})
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
        every = landlock.all_rights()
        yield "/", landlock.READ_DIR  # names are no secret, and `ls` is expected to work
        for directory in self._above:
            for entry in _entries(directory):
                path = Path(entry)
                if path not in self._places and path not in self._above:
                    yield entry, every


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
    # the state directory may be made later; a file of settings is read at the start or never
    places = [settings.state_dir, *filter(Path.exists, [Path(TOML_FILE)])]
    return Confinement(confined=True, closed=ClosedPlaces(places), umask=mask)


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
