"""One unified diff from the files of a commit as GitLab tells them. Pure.

GitLab tells each file's hunks without the lines above them, so those are made here, always in the same way:
the same answer gives the same bytes, and `git apply` takes them. It has no blob ids and no binary content: a
binary file is named and said to differ.

GitLab leaves out what it finds too much: it says so at a file (too_large, collapsed), and cuts long lists off
without a word. A diff that is known to lack something is no evidence: `gap` says what it lacks.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from actors.scm.gitlab_answer import MAX_FIELD, BadAnswer, mapping, text

__all__ = ["FileDiff", "file_diff", "gap", "rendered"]

NO_MODE: Final = ("", "0")
HEADER: Final = re.compile(r"\A(--- [^\n]*\n\+\+\+ [^\n]*\n)")
# What git quotes in a path; letters of other scripts stay as they are.
QUOTED: Final = re.compile(r'[\x00-\x1f"\\\x7f]')
ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class FileDiff:
    old_path: str
    new_path: str
    old_mode: str
    new_mode: str
    new: bool
    deleted: bool
    renamed: bool
    hunks: str
    left_out: str | None
    """The flag under which GitLab leaves the content out."""


def file_diff(answer: Any) -> FileDiff:
    given = mapping(answer, "a file of a diff")
    old, new = text(given.get("old_path"), MAX_FIELD), text(given.get("new_path"), MAX_FIELD)
    hunks = given.get("diff")
    if not (old or new) or not isinstance(hunks, str):
        raise BadAnswer("a file of a diff without a path or content")
    flags = [name for name in ("too_large", "collapsed", "generated_file") if given.get(name) is True]
    empty = not hunks and not given.get("renamed_file")
    left_out = flags[0] if flags and (flags[0] != "generated_file" or empty) else None
    return FileDiff(
        old_path=old or new,
        new_path=new or old,
        old_mode=text(given.get("a_mode"), 10),
        new_mode=text(given.get("b_mode"), 10),
        new=given.get("new_file") is True,
        deleted=given.get("deleted_file") is True,
        renamed=given.get("renamed_file") is True,
        hunks=hunks,
        left_out=left_out,
    )


def rendered(files: Iterable[FileDiff]) -> Iterable[bytes]:
    """The diff, a file at a time, in the order of paths."""
    ordered = sorted(files, key=lambda one: (one.new_path.encode(errors="replace"), one.old_path))
    return (_one(file).encode(errors="replace") for file in ordered)


def _one(file: FileDiff) -> str:
    old, new = _path("a/", file.old_path), _path("b/", file.new_path)
    lines = [f"diff --git {old} {new}"]
    if file.new:
        lines.append(f"new file mode {file.new_mode}")
    elif file.deleted:
        lines.append(f"deleted file mode {file.old_mode}")
    elif file.old_mode != file.new_mode and not {file.old_mode, file.new_mode} & set(NO_MODE):
        lines += [f"old mode {file.old_mode}", f"new mode {file.new_mode}"]
    if file.renamed:
        lines += [f"rename from {_path('', file.old_path)}", f"rename to {_path('', file.new_path)}"]
    hunks = HEADER.sub("", file.hunks, count=1)
    if hunks.startswith("@@"):
        lines += [f"--- {'/dev/null' if file.new else old}", f"+++ {'/dev/null' if file.deleted else new}"]
    whole = "\n".join([*lines, hunks])
    return whole if whole.endswith("\n") else whole + "\n"


def _path(side: str, path: str) -> str:
    whole = f"{side}{path}"
    if not QUOTED.search(whole):
        return whole
    return '"' + QUOTED.sub(lambda found: ESCAPES.get(found[0], f"\\{ord(found[0]):03o}"), whole) + '"'


def gap(files: Sequence[FileDiff], stats: tuple[int, int] | None) -> str | None:
    """What the diff is known to lack, or None. A rename counts in the figures, not in the diff."""
    left_out = [file.left_out for file in files if file.left_out]
    if left_out:
        return f"diff_incomplete:{left_out[0]}:{len(left_out)}"
    if stats is None or any(file.renamed for file in files):
        return None
    missing = sum(stats) - sum(_changed_lines(file.hunks) for file in files)
    return f"diff_incomplete:lines:{missing}" if missing > 0 else None


def _changed_lines(hunks: str) -> int:
    body = HEADER.sub("", hunks, count=1)
    return sum(line.startswith(("+", "-")) for line in body.split("\n"))
