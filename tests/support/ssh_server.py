"""sshd of this user's own on the loopback address, with keys made for it; skips where there is none."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.slowness import Allowance, patient

# where `make test` unpacks it: installed, it would serve the whole machine
UNPACKED = Path(sys.prefix, "unpacked")
PATHS = (os.environ.get("PATH", os.defpath), "/usr/sbin", str(UNPACKED / "usr/sbin"))
SSHD = shutil.which("sshd", path=os.pathsep.join(PATHS))
LIBRARIES = [str(path) for path in UNPACKED.glob("**/lib/*-linux-gnu")]


@dataclass(frozen=True)
class Door:
    user: str
    port: int
    identity: Path
    known_hosts: Path


@contextmanager
def ssh_server(place: Path) -> Iterator[Door]:
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("not installed: sshd and ssh-keygen (openssh-server, openssh-client)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where root's sshd locks up what it does not trust
    place.mkdir(mode=0o700)
    for name in ("host", "id"):
        making = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(making, check=True)
    port = free_port()
    settings = (
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {place}/host",
        f"AuthorizedKeysFile {place}/id.pub", "PidFile none", "StrictModes no", "UsePAM no",
        "PasswordAuthentication no", "PermitRootLogin prohibit-password",
    )  # fmt: skip
    (place / "sshd_config").write_text("\n".join(settings) + "\n")
    host = (place / "host.pub").read_text().split()
    (place / "known_hosts").write_text(f"[127.0.0.1]:{port} {host[0]} {host[1]}\n")
    server = subprocess.Popen(
        [*_with_its_account(place), SSHD, "-D", "-f", str(place / "sshd_config"), "-E", str(place / "log")],
        env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(LIBRARIES)},
    )
    try:
        _until_it_answers(server, port)
        yield Door(getpass.getuser(), port, place / "id", place / "known_hosts")
    finally:
        server.terminate()
        server.wait(patient(10))


def _with_its_account(place: Path) -> list[str]:
    """Root's sshd wants the account that its package makes: in a mount namespace of its own it has one."""
    if os.geteuid() != 0 or any(one.pw_name == "sshd" for one in pwd.getpwall()):
        return []
    accounts = Path("/etc/passwd").read_text()
    (place / "passwd").write_text(f"{accounts}sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n")
    script = 'mount --bind "$0" /etc/passwd && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(place / "passwd")]


def _until_it_answers(server: "subprocess.Popen[bytes]", port: int) -> None:
    allowance, last = Allowance(20), ""
    while not allowance.used_up():
        if server.poll() is not None:
            pytest.skip("sshd of this user's own does not start here")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError as error:
            last = repr(error)
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"sshd does not answer within {allowance}; at last: {last}")
