"""One search: the model is made into a program by spin, compiled, and run with bounded memory and time."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.model.cases import Case
from tests.support.slowness import patient

Verdict = Literal["HOLDS", "FAILS", "BOUNDED", "BROKEN"]

HERE: Final = Path(__file__).parent
MEMORY_MB: Final = 5500
# SAFETY: no search for cycles, so no room for it. NOREDUCE: everything is shared, a reduction only costs.
COMPILE: Final = ("-w", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=1024", f"-DMEMLIM={MEMORY_MB}")
DEPTH: Final = 100_000
LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    verdict: Verdict
    states: int
    seconds: float
    said: str = ""
    trail: str = ""

    @property
    def as_expected(self) -> bool:
        """A search that did not finish proves nothing."""
        return self.verdict == {"holds": "HOLDS", "fails": "FAILS"}[self.case.expected]


def missing_programs() -> list[str]:
    """What has to be installed first, by name."""
    packages = {"spin": "spin (the Debian package spin)", "cc": "cc (a C compiler: the Debian package gcc)"}
    return [package for name, package in packages.items() if shutil.which(name) is None]


def search(case: Case) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-model-") as name:
        place = Path(name)
        for file in HERE.glob("*.pml"):
            shutil.copy(file, place)
        # compiling costs seconds: a short search is over before a faster program would have paid for itself
        optimised = "-O0" if case.quick or case.expected == "fails" else "-O1"
        compiler = ["cc", optimised, *COMPILE, "-o", "pan", "pan.c"]
        for command in (["spin", "-a", *case.defines(), "tenure.pml"], compiler):
            made = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                return Result(case, "BROKEN", 0, time.monotonic() - began, made.stdout + made.stderr)
        output = _run(place, case)
        verdict = _verdict(output)
        trail = _trail(place, case) if verdict == "FAILS" else ""
    stored = re.search(r"(\d+) states, stored", output)
    states = int(stored.group(1)) if stored else 0
    return Result(case, verdict, states, time.monotonic() - began, output, trail)


def _run(place: Path, case: Case) -> str:
    """Interrupted at its limit it still tells how far it came. The limit is of processor time."""
    command = ["nice", "-n", "10", "./pan", f"-m{DEPTH}", *([] if case.wants_ends else ["-E"])]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            while True:
                try:
                    return process.communicate(timeout=LOOK_SECONDS)[0]
                except subprocess.TimeoutExpired:
                    if _processor_seconds(process.pid) > case.seconds:
                        process.send_signal(signal.SIGINT)
        finally:
            process.kill()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _verdict(output: str) -> Verdict:
    errors = re.search(r"errors: (\d+)", output)
    if errors is None or "invalid array index" in output:
        return "BROKEN"
    if "assertion violated" in output or "invalid end state" in re.sub(r"invalid end states", "", output):
        return "FAILS"
    if errors.group(1) != "0":
        return "BROKEN"
    unfinished = ("Search not completed", "search depth too small", "reached -DMEMLIM bound", "out of memory")
    return "BOUNDED" if any(sign in output for sign in unfinished) else "HOLDS"


def _trail(place: Path, case: Case) -> str:
    """The way to the failure, in the words that the model says on it."""
    command = ["spin", "-t", *case.defines(), "tenure.pml"]
    told = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, timeout=patient(60)
    ).stdout
    words = ("leader ", "worker ", "the ", "somebody ", "paused: ", "-- tick")
    return "\n".join(line.strip() for line in told.splitlines() if line.strip().startswith(words))
