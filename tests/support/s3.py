"""A real S3 server for tests: OpenStack swift with s3api, as processes of its own on loopback.

It checks signatures, digests and conditions as a server must, which a mock of ours would only repeat. Where
swift is not installed, or files cannot have the attributes it keeps its data in, the tests are skipped by
name.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

import httpx
import pytest
from pydantic import SecretStr

from supervisor.artifacts.s3 import Target
from supervisor.artifacts.signature import Credentials, sign
from tests.support.server import exclusively
from tests.support.slowness import ROOT, Allowance, patient

ACCESS_KEY: Final = "t:AKtest"
SECRET_KEY: Final = "SKtestsecret"
BUCKET: Final = "artifacts"
FACTS: Final = "s3.json"


@dataclass(frozen=True)
class S3Server:
    """`endpoint` takes requests for BUCKET under ACCESS_KEY and SECRET_KEY; its files are in `root`."""

    endpoint: str
    root: Path

    @property
    def target(self) -> Target:
        return Target(self.endpoint, BUCKET, Credentials(SecretStr(ACCESS_KEY), SecretStr(SECRET_KEY)))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "ENGRAM_S3_ENDPOINT": self.endpoint,
            "ENGRAM_S3_BUCKET": BUCKET,
            "ENGRAM_S3_ACCESS_KEY": ACCESS_KEY,
            "ENGRAM_S3_SECRET_KEY": SECRET_KEY,
            "ENGRAM_TESTING": "1",
        }

    def request(self, method: str, key: str, content: bytes = b"", **headers: str) -> httpx.Response:
        """Signed, and sent as it is: for what the product itself never asks for."""
        target, url = self.target, httpx.URL(self.endpoint)
        given = {
            "host": url.netloc.decode(),
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        body = hashlib.sha256(content).hexdigest()
        at = datetime.now(UTC)
        signed = sign(target.credentials, target.region, at, method, target.path(key), "", given, body)
        return httpx.request(
            method,
            target.origin + target.path(key),
            headers=signed,
            content=content,
            timeout=patient(30),
            trust_env=False,
            verify=False,  # noqa: S501  there is no TLS, and loading certificates takes 17 ms
        )

    def put_aged(self, key: str, content: bytes, days: float, **headers: str) -> None:
        """An object that was written so long ago: this server lets its admin say when."""
        written_at = f"{time.time() - days * 86400:.5f}"
        self.request("PUT", key, content, x_timestamp=written_at, **headers).raise_for_status()


@cache
def s3_server() -> S3Server:
    """The server of this test run, started by whoever comes first."""
    if importlib.util.find_spec("swift") is None:
        pytest.skip("no S3 server: OpenStack swift is not installed (pip install swift)")
    run = Path(os.environ[ROOT])
    with exclusively("s3"):
        if not (run / FACTS).exists():
            _start(run)
    facts = json.loads((run / FACTS).read_text())
    if "missing" in facts:
        pytest.skip(f"no S3 server: {facts['missing']}")
    return S3Server(facts["endpoint"], Path(facts["root"]))


def _start(run: Path) -> None:
    with (run / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.support.swift", str(run)]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    allowance = Allowance(90)
    while not (run / FACTS).exists():
        assert process.poll() is None, (run / "s3.log").read_text()
        assert not allowance.used_up(), f"no S3 server within {allowance}"
        time.sleep(0.05)
    process.returncode = 0  # it belongs to the run, not to this process: it is not waited for
