"""The user that commands run as: TENURE_COMMAND_USER, else another user than root's.

Root would give commands the rights of the replica, and with them its secrets. So started by root they get an
account without rights, which is never the one of the embedded database; root itself has to be asked for by
name. Started by an ordinary user they run as that user.
"""

import os
import pwd
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from supervisor.config import Settings
from supervisor.embedded_home import database_owners
from supervisor.errors import BadSettings

UNPRIVILEGED: Final = ("nobody", "daemon")
CAPABILITIES: Final = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}


class CommandUser(NamedTuple):
    """Another user than the replica's."""

    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str


def command_user(settings: Settings) -> CommandUser | None:
    """Return the user of commands; None for the replica's own."""
    own = os.geteuid()
    if settings.command_user is None and own != 0:
        return None
    databases = database_owners(settings.state_dir) if own == 0 else frozenset()
    user = _named(settings.command_user) if settings.command_user else _unprivileged(databases)
    if user.uid == own:
        return None
    if user.uid in databases:
        raise BadSettings(
            what=f"TENURE_COMMAND_USER={user.name} is the user of the embedded database, whose files commands"
            " could read"
        )
    if missing := missing_capabilities(Path("/proc/self/status").read_text("ascii")):
        raise BadSettings(
            what=f"commands run as {user.name}, and this process lacks {', '.join(missing)} to start and end"
            f" them: grant these, or set TENURE_COMMAND_USER={own} to run them as its own user"
        )
    return user


def missing_capabilities(status: str) -> list[str]:
    """Return the names of what the text of /proc/self/status says is not in effect."""
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]


def _named(name: str) -> CommandUser:
    """Return the user of a name or a number; in a container, a number need not have a name."""
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else None
    try:
        return _user(pwd.getpwnam(name) if number is None else pwd.getpwuid(number))
    except KeyError:
        if number is None:
            raise BadSettings(what=f"TENURE_COMMAND_USER={name}: there is no such user") from None
    return CommandUser(name, number, number, [number], "/")


def _unprivileged(not_these: Collection[int]) -> CommandUser:
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid not in {0, *not_these}:
            return _user(entry)
    raise BadSettings(
        what=f"commands do not run as root, and none of the users {', '.join(UNPRIVILEGED)} is free:"
        " name one with TENURE_COMMAND_USER"
    )


def _user(entry: pwd.struct_passwd) -> CommandUser:
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return CommandUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
