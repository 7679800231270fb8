"""What people type at the commands of this domain, checked before anything is changed."""

import os
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from actors.dedup.confine import library_root
from actors.dedup.names import to_text
from actors.dedup.orders import NAME, NAME_RULE
from supervisor.config import Settings
from supervisor.errors import BadInput

GROUP_KEY: Final = re.compile(r"(blake3|sha256):([0-9a-f]{64})")
FILE_KEY: Final = re.compile(r"file:[1-9][0-9]{0,18}")
THUMB_KEY: Final = re.compile(r"[0-9a-f]{64}")


def small_digits(key: str | None) -> str | None:
    """A group's key in its one spelling: the digits may be typed in capitals, the tables have small ones."""
    algorithm, colon, digits = (key or "").partition(":")
    return key and f"{algorithm}{colon}{digits.lower()}"


LibraryName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a library.", show_default=False)
]
GroupKey = Annotated[
    str,
    typer.Argument(
        metavar="GROUP_KEY",
        help="As `tenure duplicates` shows it.",
        show_default=False,
        callback=small_digits,
    ),
]


class NoLibrariesDirectory(BadInput):
    """nobody said where the libraries are: TENURE_LIBRARIES_DIR is unset"""

    hint = "set it to the directory that holds them, here and for every replica"


class OutsideLibraries(BadInput):
    """{path} is not beneath {directory}"""

    hint = "libraries lie beneath TENURE_LIBRARIES_DIR; give a path relative to it, as in `photos/2024`"


def check_library(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise BadInput(what=f"{name!r} cannot be the name of a library: {NAME_RULE}")
    return name


def libraries_directory(settings: Settings) -> Path:
    """Where all libraries lie."""
    if settings.libraries_dir is None:
        raise NoLibrariesDirectory
    return settings.libraries_dir


def library_path(directory: Path, given: str) -> str:
    """The path relative to the libraries' directory, as it is stored; opened once as the replicas will."""
    path = to_text(os.fsencode(given)) if "\0" not in given else given
    relative = _beneath(directory, path) if path.startswith("/") else path
    relative = relative.rstrip("/") or relative
    library_root(directory, relative).close()
    return relative


def _beneath(directory: Path, path: str) -> str:
    """Compared as written, or with the directory itself resolved: it alone may be a link."""
    for root in dict.fromkeys((str(directory), os.path.realpath(directory))):
        if path.startswith(f"{root.rstrip('/')}/"):
            return path[len(root.rstrip("/")) + 1 :]
    raise OutsideLibraries(path=path, directory=directory)


def parse_group(key: str) -> tuple[str, bytes]:
    """Algorithm and hash."""
    found = GROUP_KEY.fullmatch(key)
    if found is None:
        raise BadInput(what=f"{key!r} is no group: write blake3: or sha256: and 64 digits from 0-9a-f")
    return found[1], bytes.fromhex(found[2])


def check_cleanup_group(key: str) -> str:
    """Thumbnails of a file that has no hash yet are a group of their own."""
    if FILE_KEY.fullmatch(key) is None:
        parse_group(key)
    return key


def check_thumb(key: str) -> str:
    if THUMB_KEY.fullmatch(key) is None:
        raise BadInput(what=f"{key!r} is no thumbnail's key: it has 64 digits from 0-9a-f")
    return key
