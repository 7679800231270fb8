"""The mirror of a git repository: a bare copy of its branches in the state directory, brought up to date by
fetch.

    async with GitMirror(programs, directory, repo_id, pinned, secret=secret).open() as repository:
        ...  # repository.heads(), .listing(), .commits(), .diffs()

One process at a time works with a mirror (a file lock, given back by the kernel when its holder dies). The
first copy is made under another name and appears complete. What a killed git left behind (lock files, half a
pack) is removed before the next fetch; a mirror that turns out to be broken is set aside, and made anew by
the next run.

Only refs/heads/* come in: no tags, notes or replacements, no submodules. Hooks do not run, on either side of
a fetch; objects are checked as they come in, except for what does no harm without a checkout.

NOT guaranteed: a mirror is no backup. Commits that nothing names any more are removed after two weeks.
"""

import fcntl
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from actors.scm.address import Pinned
from actors.scm.backoff import Trouble, trouble_of_git
from actors.scm.git_repository import BrokenMirror, GitRepository, git_failed
from actors.scm.process import CommandNotStarted, Ended, Programs
from actors.scm.surroundings import Secret, SshFiles, git_environment
from supervisor.errors import Conflict

__all__ = ["GitMirror", "MirrorBusy"]

LOCK_POLL_SECONDS: Final = 0.2
BRANCHES: Final = "+refs/heads/*:refs/heads/*"
FETCH: Final = (
    "--quiet", "--prune", "--force", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
    "--no-recurse-submodules", "--no-show-forced-updates",
)  # fmt: skip
# Mistakes of old tools in the history of honest repositories, and what only a checkout has to fear.
HARMLESS: Final = (
    "badTimezone", "missingSpaceBeforeDate", "missingEmail", "missingNameBeforeEmail", "zeroPaddedFilemode",
    "badFilemode", "zeroPaddedDate", "missingSpaceBeforeEmail", "badDateOverflow", "nullSha1", "hasDotgit",
    "nulInCommit", "multipleAuthors", "gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing",
    "gitmodulesName", "gitmodulesParse", "gitmodulesPath", "gitmodulesSymlink", "gitmodulesUpdate",
    "gitmodulesUrl", "gitattributesBlob", "gitattributesLarge", "gitattributesLineLength",
    "gitattributesMissing",
)  # fmt: skip
BROKEN: Final = re.compile(
    r"bad object|missing (blob|tree|commit|object)|corrupt|inflate|not a git repository|unable to read"
    r"|bad config|packfile .* (cannot|does not)|loose object|invalid sha1 pointer|unable to parse"
    r"|not a valid object",
    re.IGNORECASE,
)


class MirrorBusy(Conflict):
    """the mirror of repository {repo_id} is in use by another process"""

    hint = "one sync of a repository at a time; nothing to do"


class GitMirror:
    def __init__(
        self,
        programs: Programs,
        directory: Path,
        repo_id: int,
        pinned: Pinned,
        *,
        secret: Secret | None = None,
        ssh: SshFiles | None = None,
        lock_seconds: float = 0.0,
    ) -> None:
        self._programs = programs
        self._directory = directory
        self._repo_id = repo_id
        self._url = pinned.of.url
        self._secrets = secret.forms if secret else ()
        self._env = git_environment(programs.scratch, pinned, secret, ssh or SshFiles())
        self._local_env = git_environment(programs.scratch, None, None, SshFiles())
        self._lock_seconds = lock_seconds

    @property
    def path(self) -> Path:
        return self._directory / f"{int(self._repo_id)}.git"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[GitRepository]:
        """The mirror, as the repository is now. It is this block's alone until it is left."""
        await to_thread.run_sync(lambda: self._directory.mkdir(mode=0o700, parents=True, exist_ok=True))
        with _lock_file(self._directory / f"{int(self._repo_id)}.lock") as handle:
            await self._lock(handle)
            await self._update()
            try:
                yield GitRepository(self._programs, self.path, self._local_env)
            except BrokenMirror as broken:
                await to_thread.run_sync(_remove, self.path)
                raise git_failed(
                    Trouble.SERVER_ERROR, f"its mirror was broken, and is made anew: {broken}"
                ) from None

    async def _lock(self, handle: int) -> None:
        with anyio.move_on_after(self._lock_seconds) as patience:
            while not _locked(handle):
                await anyio.sleep(LOCK_POLL_SECONDS)
        if patience.cancelled_caught:
            raise MirrorBusy(repo_id=self._repo_id)

    async def _update(self) -> None:
        await to_thread.run_sync(self._clear_leftovers)
        if self.path.exists():
            complaint = await self._fetch(self.path)
            if complaint is None:
                await self._tidy()
                return
            if not BROKEN.search(complaint):
                raise git_failed(trouble_of_git(complaint), complaint)
            await to_thread.run_sync(_remove, self.path)
        await self._clone()

    async def _clone(self) -> None:
        new = self.path.with_suffix(".new")
        init = ("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        complaint = await self._git(*init, "--", str(new)) or await self._fetch(new)
        if complaint is not None:
            await to_thread.run_sync(_remove, new)
            raise git_failed(trouble_of_git(complaint), complaint)
        await to_thread.run_sync(_rename, new, self.path)

    async def _fetch(self, mirror: Path) -> str | None:
        checks = ["-c", "fetch.fsckObjects=true"]
        for mistake in HARMLESS:
            checks += ["-c", f"fetch.fsck.{mistake}=ignore"]
        return await self._git(*checks, f"--git-dir={mirror}", "fetch", *FETCH, "--", self._url, BRANCHES)

    async def _tidy(self) -> None:
        """Many fetches make many packs. Nothing of a failure here matters to what was fetched."""
        limits = ("-c", "gc.auto=6700", "-c", "gc.autoPackLimit=50", "-c", "gc.autoDetach=false")
        await self._git(*limits, f"--git-dir={self.path}", "gc", "--auto", "--quiet")

    async def _git(self, *arguments: str) -> str | None:
        """Run git to its end; what it complained about when it failed."""
        try:
            async with self._programs.run(
                ["git", *arguments], self._env, secrets=self._secrets, idle_seconds=float("inf")
            ) as program:
                ended = await program.end()
                return None if ended.exit_code == 0 else _complaint(ended, program.stderr)
        except CommandNotStarted as refusal:
            raise git_failed(Trouble.BAD_CONFIG, str(refusal)) from None

    def _clear_leftovers(self) -> None:
        """Of git processes that were killed: we hold the lock, so none of them lives."""
        _remove(self.path.with_suffix(".new"))
        if not self.path.exists():
            return
        for lock in (*self.path.glob("*.lock"), *self.path.glob("refs/**/*.lock")):
            lock.unlink(missing_ok=True)
        for part in self.path.glob("objects/pack/tmp_*"):
            part.unlink(missing_ok=True)


def _complaint(ended: Ended, stderr: str) -> str:
    if ended.exit_code is None:
        return f"git was ended ({ended.stopped}, signal {ended.signal}): timed out"
    return stderr.strip() or f"git exited with {ended.exit_code}"


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    """First out of the way in one step: half of a mirror must never be taken for one."""
    gone = path.with_suffix(".gone")
    shutil.rmtree(gone, ignore_errors=True)
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone)


def _rename(new: Path, path: Path) -> None:
    new.rename(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
