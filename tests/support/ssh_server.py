"""sshd of this user's own on the loopback address, with keys made for it; skips where there is none."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@dataclass(frozen=True)
class Door:
    user: str
    port: int
    identity: Path
    known_hosts: Path


@contextmanager
def ssh_server(place: Path) -> Iterator[Door]:
    if not Path(SSHD).exists() or shutil.which("ssh-keygen") is None:
        pytest.skip("not installed: sshd and ssh-keygen (openssh-server, openssh-client)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where root's sshd locks up what it does not trust
    place.mkdir(mode=0o700)
    for name in ("host", "id"):
        making = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(making, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = (
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {place}/host",
        f"AuthorizedKeysFile {place}/id.pub", "PidFile none", "StrictModes no", "UsePAM no",
        "PasswordAuthentication no", "PermitRootLogin prohibit-password",
    )  # fmt: skip
    (place / "sshd_config").write_text("\n".join(settings) + "\n")
    host = (place / "host.pub").read_text().split()
    (place / "known_hosts").write_text(f"[127.0.0.1]:{port} {host[0]} {host[1]}\n")
    server = subprocess.Popen([SSHD, "-D", "-f", str(place / "sshd_config"), "-E", str(place / "log")])
    try:
        _until_it_answers(server, port)
        yield Door(getpass.getuser(), port, place / "id", place / "known_hosts")
    finally:
        server.terminate()
        server.wait(10)


def _until_it_answers(server: "subprocess.Popen[bytes]", port: int) -> None:
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        if server.poll() is not None:
            pytest.skip("sshd of this user's own does not start here")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("sshd does not answer")
