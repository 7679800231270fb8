"""The files in which commands find their arguments: one for each run, private, gone when the run has ended.

A replica has one directory, and locks it for as long as it lives. A directory without a lock is left by a
killed replica: the next replica of the same user removes it.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any, Final
from uuid import uuid4

PREFIX: Final = "tenure-arguments-"


@contextmanager
def arguments_file(arguments: Mapping[str, Any], *, another_user: bool) -> Iterator[Path]:
    """Write the arguments to a file for the command's user, and remove it at the end.

    Another user than ours reads it because its name cannot be guessed and the directory cannot be listed.
    """
    file, handle = _new_file()
    try:
        if another_user:
            os.fchmod(handle, 0o444)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(arguments, out, ensure_ascii=False)
        yield file
    finally:
        file.unlink(missing_ok=True)


def _new_file() -> tuple[Path, int]:
    name, new = f"{uuid4().hex}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return directory() / name, os.open(directory() / name, new, 0o400)
    except FileNotFoundError:  # a cleaner of old files, or a command of the same user, removed the directory
        directory.cache_clear()
        return directory() / name, os.open(directory() / name, new, 0o400)


@cache
def directory() -> Path:
    """Make this process's directory; the lock ends with the process, however that ends."""
    remove_left()
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    made.chmod(0o711)
    fcntl.flock(os.open(made, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)
    # only now do others see it: what they see unlocked, they remove
    return made.rename(made.with_name(made.name.removeprefix(".")))


def remove_left() -> None:
    """Remove the directories of this user's processes that were killed."""
    for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            opened = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(opened).st_uid == os.geteuid():
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(found, ignore_errors=True)
        except OSError:
            continue  # its process lives
        finally:
            os.close(opened)
