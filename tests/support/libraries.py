"""Libraries of real files for tests: with duplicates, and with an oracle that finds them in its own way."""

import hashlib
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyvips

Groups = set[frozenset[str]]


def small_files(root: Path, count: int, *, seed: int = 1, directories: int = 100) -> None:
    """Text of few sizes, so that sizes say little; about a fifth are copies."""
    chance = random.Random(seed)  # noqa: S311  the same files each time
    folders = [root / f"d{number // 10:02}" / f"e{number:03}" for number in range(max(1, directories))]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    kept: list[bytes] = []
    for number in range(count):
        if kept and chance.random() < 0.2:
            content = chance.choice(kept)
        else:
            content = f"{number}:".encode().ljust(chance.choice((64, 200, 1000, 3000)), b"x")
            if len(kept) < 1000:
                kept.append(content)
        (folders[number % len(folders)] / f"f{number:06}.txt").write_bytes(content)


def photos(root: Path, count: int, *, seed: int = 2, different: int = 24, pixels: int = 400) -> None:
    """Pictures with noise in them; all but `different` of them are made by changing the last bytes of one."""
    chance = random.Random(seed)  # noqa: S311  the same files each time
    root.mkdir(parents=True, exist_ok=True)
    made: list[bytes] = []
    for number in range(count):
        if len(made) < different:
            noise = pyvips.Image.gaussnoise(pixels, pixels * 3 // 4, sigma=40, mean=128, seed=number)
            made.append(noise.cast("uchar").jpegsave_buffer(Q=80 - number % 20))
        picture = made[number % len(made)]
        # behind the end of a JPEG anything may stand: another content, and as good a picture
        copy = chance.random() < 0.1
        content = picture if copy else picture + f"{number:08}".encode()
        folder = root / f"{2000 + number % 20}"
        folder.mkdir(exist_ok=True)
        (folder / f"img_{number:05}.jpg").write_bytes(content)


def duplicates_in(*roots: Path) -> Groups:
    """By SHA-256 over whole files, sizes first."""
    by_size: dict[int, list[Path]] = defaultdict(list)
    for root in roots:
        for path in _files(root):
            by_size[path.stat().st_size].append(path)
    groups: dict[tuple[int, bytes], set[str]] = defaultdict(set)
    for size, paths in by_size.items():
        if len(paths) > 1:
            for path in paths:
                groups[size, hashlib.sha256(path.read_bytes()).digest()].add(str(path))
    return {frozenset(group) for group in groups.values() if len(group) > 1}


def parsed_jdupes(text: str) -> Groups:
    return {frozenset(block.splitlines()) for block in text.strip().split("\n\n") if block}


def fingerprint(root: Path) -> str:
    """Of every name, content, mode and time beneath: what must not change."""
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        facts = path.lstat()
        digest.update(os.fsencode(path) + f"|{facts.st_mode}|{facts.st_mtime_ns}|{facts.st_size}|".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(root: Path) -> Iterable[Path]:
    for folder, _folders, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def jdupes() -> Sequence[str] | None:
    """The command that lists duplicates, where it is installed."""
    program = shutil.which("jdupes")
    return None if program is None else [program, "--quiet", "--recurse", "--zero-match", "--hard-links"]
