"""A real S3 server for tests: OpenStack swift with s3api, as processes of its own on loopback.

It checks signatures, digests and conditions as a server must, which a mock of ours would only repeat. Where
swift is not installed, or files cannot have the attributes it keeps its data in, the tests are skipped by
name.
"""

import atexit
import getpass
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import pytest
from pydantic import SecretStr

from supervisor.artifacts.s3 import Target
from supervisor.artifacts.signature import Credentials, sign
from supervisor.tether import tethered
from tests.support.ports import free_port
from tests.support.slowness import Allowance, patient

ACCESS_KEY: Final = "t:AKtest"
SECRET_KEY: Final = "SKtestsecret"
BUCKET: Final = "artifacts"
KINDS: Final = ("account", "container", "object")

SWIFT: Final = """
[swift-hash]
swift_hash_path_suffix = tests
[storage-policy:0]
name = only
default = yes
"""

STORAGE: Final = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
devices = {root}/devices
mount_check = false
disable_fallocate = true
workers = 0
user = {user}
swift_dir = {root}/etc
log_name = {kind}
log_address = {root}/nowhere
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
# after a second it would answer, and the object be in no list yet
conn_timeout = 20
node_timeout = 60
container_update_timeout = 60
"""

# each is `egg:swift#<name>`; no cache: there is no memcached here, and only swift's own tokens need one
FILTERS: Final = {
    "catch_errors": "",
    "gatekeeper": "shunt_inbound_x_timestamp = false",
    "listing_formats": "",
    "bulk": "",
    "s3api": "s3_acl = false",
    "tempauth": "user_t_AKtest = SKtestsecret .admin",
    "copy": "",
    "slo": "",
    "versioned_writes": "allow_object_versioning = true",
    "symlink": "",
}
PROXY: Final = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {root}/etc
log_address = {root}/nowhere
[pipeline:main]
pipeline = {pipeline} proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
# a busy machine is no broken one: by default it answers 503 after half a second, and ten times for a minute
conn_timeout = 20
node_timeout = 60
recoverable_node_timeout = 60
error_suppression_limit = 1000000
"""

RINGS: Final = """
import sys
from swift.common.ring import RingBuilder

for kind, port in (argument.split("=") for argument in sys.argv[2:]):
    builder = RingBuilder(4, 1, 1)
    device = {"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1", "weight": 1}
    builder.add_dev({**device, "meta": ""})
    builder.rebalance()
    builder.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""


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
        )

    def put_aged(self, key: str, content: bytes, days: float, **headers: str) -> None:
        """An object that was written so long ago: this server lets its admin say when."""
        written_at = f"{time.time() - days * 86400:.5f}"
        self.request("PUT", key, content, x_timestamp=written_at, **headers).raise_for_status()


_running: list[S3Server] = []


def s3_server() -> S3Server:
    """The one of this test run."""
    if not _running:
        _running.append(_start())
    return _running[0]


def _start() -> S3Server:
    scripts = Path(sysconfig.get_path("scripts"))
    if importlib.util.find_spec("swift") is None or not (scripts / "swift-proxy-server").exists():
        pytest.skip("no S3 server: OpenStack swift is not installed (pip install swift)")
    root = Path(tempfile.mkdtemp(prefix="tenure-s3-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    try:
        os.setxattr(root, "user.swift.test", b"1")
    except OSError as error:
        pytest.skip(f"no S3 server: files in {root.parent} take no attributes: {error.strerror}")
    ports = {kind: free_port() for kind in (*KINDS, "proxy")}
    _write_rings(root, ports)
    facts = {"root": root, "user": getpass.getuser(), "pipeline": " ".join(FILTERS)}
    processes: list[subprocess.Popen[bytes]] = []
    for kind, port in ports.items():
        template = PROXY if kind == "proxy" else STORAGE
        file = root / "etc" / f"{kind}.conf"
        file.write_text(
            template.format(kind=kind, port=port, **facts) + (_filters() if kind == "proxy" else "")
        )
        command = tethered([sys.executable, str(scripts / f"swift-{kind}-server"), str(file)])
        with (root / f"{kind}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"PYTHONWARNINGS": "ignore"}
            )
        atexit.register(_stop, process)
        processes.append(process)
    server = S3Server(f"http://127.0.0.1:{ports['proxy']}", root)
    _make_bucket(server, root, processes)
    return server


def _filters() -> str:
    return "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n{option}\n" for name, option in FILTERS.items())


def _write_rings(root: Path, ports: dict[str, int]) -> None:
    for directory in ("etc", "devices/d1"):
        (root / directory).mkdir(parents=True)
    (root / "etc/swift.conf").write_text(SWIFT)
    command = [sys.executable, "-W", "ignore", "-c", RINGS, str(root / "etc")]
    subprocess.run([*command, *(f"{kind}={ports[kind]}" for kind in KINDS)], check=True, timeout=patient(60))


def _make_bucket(server: S3Server, root: Path, processes: "list[subprocess.Popen[bytes]]") -> None:
    allowance, last = Allowance(60), ""
    while not allowance.used_up() and all(process.poll() is None for process in processes):
        try:
            server.request("PUT", "").raise_for_status()
        except httpx.HTTPError as error:
            last = repr(error)
            time.sleep(0.05)
        else:
            return
    logs = "\n".join(log.read_text()[-2000:] for log in root.glob("*.log"))
    raise AssertionError(f"no bucket within {allowance}; at last: {last}\n{logs}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
