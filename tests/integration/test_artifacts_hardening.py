"""deploy/s3-hardening: the policies say what the documentation says, and the script does nothing unasked."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.slowness import patient

HERE = Path(__file__).parents[2] / "deploy/s3-hardening"
ARGUMENTS = ["--bucket", "artifacts", "--base", "engram/proj_a"]
AWS = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *--if-none-match*) [ -n "$IGNORES" ] || { echo "An error occurred (PreconditionFailed)" >&2; exit 254; } ;;
  *lifecycle*) for last; do case "$last" in file://*) cat "${last#file://}" >> "$CALLS" ;; esac; done ;;
esac
"""


def policy(name: str) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = json.loads((HERE / "policies" / name).read_text())["Statement"]
    return statements


def actions(name: str) -> set[str]:
    return {action for statement in policy(name) for action in statement["Action"]}


@pytest.mark.parametrize("kind", ["iam", "minio"])
def test_the_least_rights(kind: str) -> None:
    """R001-091: GetObject and PutObject for all, DeleteObject for operators only, all within the project"""
    assert {"s3:GetObject", "s3:PutObject", "s3:ListBucket"} <= actions(f"{kind}-app.json")
    assert "s3:DeleteObject" not in actions(f"{kind}-app.json")
    assert "s3:DeleteObject" in actions(f"{kind}-ops.json")
    for name in (f"{kind}-app.json", f"{kind}-ops.json"):
        objects, listing = policy(name)
        assert objects["Resource"] == "arn:aws:s3:::@BUCKET@/@BASE@/*"
        assert listing["Condition"] == {"StringLike": {"s3:prefix": ["@BASE@/*"]}}
    assert all("PrincipalTag/project_key" in json.dumps(one) for one in policy("iam-by-project-tag.json"))


def test_plain_http_is_denied() -> None:
    """R001-090, R001-092"""
    first = policy("bucket-tls-only.json")[0]
    assert (first["Effect"], first["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_the_lifecycle() -> None:
    """R001-093: tmp/ after 7 days, exports/ after 90; prefixes are literal, without a wildcard"""
    rules = {rule["ID"]: rule for rule in json.loads((HERE / "lifecycle.json").read_text())["Rules"]}
    for name, prefix, days in (("tenure-tmp", "tmp", 7), ("tenure-exports", "exports", 90)):
        assert rules[name]["Filter"] == {"Prefix": f"@BASE@/{prefix}/"}
        assert (rules[name]["Expiration"], rules[name]["Status"]) == ({"Days": days}, "Enabled")
    assert "*" not in json.dumps(rules)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an aws of our own was asked for."""
    (tmp_path / "aws").write_text(AWS)
    (tmp_path / "aws").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("IGNORES", "")
    return tmp_path / "calls"


def script(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(HERE / "s3_hardening.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=False)


def test_it_only_tells_what_it_would_do(calls: Path) -> None:
    """R001-092: versions, encryption, logs, lock"""
    told = script(*ARGUMENTS, "--log-bucket", "logs", "--lock-days", "30", "--kms-key", "k1")
    assert told.returncode == 0, told
    assert not calls.exists()
    for part in (
        "put-bucket-versioning",
        "put-bucket-encryption",
        "aws:kms",
        "put-bucket-logging",
        "GOVERNANCE",
    ):
        assert part in told.stdout


def test_it_does_it(calls: Path) -> None:
    """R001-092, R001-093: with the project's own prefix"""
    done = script(*ARGUMENTS, "--execute")
    assert done.returncode == 0, done
    asked = calls.read_text()
    assert "Status=Enabled" in asked
    assert "engram/proj_a/tmp/" in asked
    assert "@BASE@" not in asked
    assert "put-bucket-logging" not in asked


def test_a_store_without_conditions_is_named(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IGNORES", "1")
    done = script(*ARGUMENTS, "--execute")
    assert done.returncode == 1
    assert "If-None-Match" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--bucket", "artifacts"], ["--bucket", "Not A Bucket", "--base", "x"],
        ["--bucket", "a|b", "--base", "x"],
        ["--bucket", "artifacts", "--base", "../x"], [*ARGUMENTS, "--endpoint", "http://minio"],
        [*ARGUMENTS, "--tool", "mc"], [*ARGUMENTS, "--lock-days", "0"], [*ARGUMENTS, "--unknown"],
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(calls: Path, arguments: list[str]) -> None:
    assert script(*arguments).returncode == 2
    assert not calls.exists()
