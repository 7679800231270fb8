"""The peers, in virtual environments of their own, each pinned by a lock (peers.txt is made from peers.in).

arq wants an older client of Redis than the others, and so lives alone.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
LOCKS: Final = {"peers": HERE / "peers.txt", "arq": HERE / "arq.txt"}
SHOWN: Final = ("pgqueuer", "procrastinate", "dbos", "absurd-sdk", "taskiq", "taskiq-redis", "arq")


@dataclass(frozen=True)
class Peers:
    """`pythons` run them, by environment; without any there are none."""

    pythons: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return bool(self.pythons)

    def python_of(self, name: str) -> str:
        """What is written by hand runs in this environment."""
        if name == "hand":
            return sys.executable
        return self.pythons[name if name in self.pythons else "peers"]


NONE: Final = Peers()


def home() -> Path:
    return Path(os.environ.get("TENURE_BENCH_HOME") or HERE.parents[1] / ".venv" / "bench")


def installed() -> Peers:
    """Those that an earlier run installed from these very locks, if any."""
    if not all(_stamp(name).exists() for name in LOCKS):
        return NONE
    pythons = {name: str(home() / name / "bin" / "python") for name in LOCKS}
    pinned = {name: version for lock in LOCKS.values() for name, version in _pins(lock)}
    return Peers(pythons, {name: pinned[name] for name in SHOWN if name in pinned})


def install() -> Peers:
    for name, lock in LOCKS.items():
        if _stamp(name).exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home() / name)], check=True)
        pip = [str(home() / name / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        # the lock is whole; pip would look for a pin of `psycopg[binary]` beside that of psycopg
        subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(lock)], check=True)
        _stamp(name).touch()
    return installed()


def _stamp(name: str) -> Path:
    return home() / name / f".{hashlib.sha256(LOCKS[name].read_bytes()).hexdigest()[:16]}"


def _pins(lock: Path) -> Iterable[tuple[str, str]]:
    for line in lock.read_text().splitlines():
        if "==" in line and not line.startswith(("#", " ")):
            name, _, version = line.split(";")[0].strip(" \\").partition("==")
            yield name, version.strip()
