"""Start OpenStack swift with s3api for a test run: `python -m tests.support.swift RUN_DIRECTORY`.

It is started once for all test processes, writes where it answers into `s3.json` of the run's directory, and
ends when the run does, however that ends: the run's main process holds a lock on its directory.
"""

import fcntl
import getpass
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from supervisor.tether import tethered
from tests.support.ports import free_port
from tests.support.s3 import FACTS, S3Server
from tests.support.slowness import Allowance, patient

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


def start(root: Path) -> S3Server:
    """Start the four servers; they end with this process."""
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
        program = Path(sysconfig.get_path("scripts"), f"swift-{kind}-server")
        command = tethered([sys.executable, str(program), str(file)])
        with (root / f"{kind}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=os.environ | {"PYTHONWARNINGS": "ignore"}
                )
            )
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


def main() -> None:
    run = Path(sys.argv[1])
    root = Path(tempfile.mkdtemp(prefix="tenure-s3-", dir="/var/tmp"))
    try:
        draft = run / f"{FACTS}.new"
        draft.write_text(json.dumps(_facts(root)))
        draft.rename(run / FACTS)
        lock = os.open(run, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)  # waits for the end of the run
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _facts(root: Path) -> dict[str, str]:
    try:
        os.setxattr(root, "user.swift.test", b"1")
    except OSError as error:
        return {"missing": f"files in {root.parent} take no attributes: {error.strerror}"}
    return {"endpoint": start(root).endpoint, "root": str(root)}


if __name__ == "__main__":
    main()
