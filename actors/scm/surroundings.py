"""What svn, git and ssh find around them: an environment of ours alone, and the secret of one repository.

Nothing of the replica's own environment is handed on but PATH. Configuration of the system and of the
account is off; questions are answered with no; the protocols are the one asked for and no other. A secret
reaches svn through its standard input, and git through its environment as a header that goes to this
repository's address alone.
"""

import base64
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actors.scm.address import Pinned
from actors.scm.backoff import Trouble
from actors.scm.records import SourceFailed
from supervisor.own_variables import TOKENS, is_own

__all__ = ["Secret", "SshFiles", "git_environment", "secret_from", "svn_arguments", "svn_environment"]

CONNECT_SECONDS: Final = 30
LOW_SPEED_SECONDS: Final = 60
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
DEFAULT_USER: Final = "git"


@dataclass(frozen=True, slots=True)
class Secret:
    """A token or password, with the name it goes with. Never shown."""

    value: str = field(repr=False)
    user: str = ""

    @property
    def header(self) -> str:
        pair = f"{self.user or DEFAULT_USER}:{self.value}".encode()
        return f"Authorization: Basic {base64.b64encode(pair).decode()}"

    @property
    def forms(self) -> tuple[str, ...]:
        """Everything that must not be seen in a message."""
        return (self.value, self.header, self.header.rpartition(" ")[2])


@dataclass(frozen=True, slots=True)
class SshFiles:
    """Whose key opens the door, and whose doors are known; None leaves it to the account's own ~/.ssh."""

    identity: Path | None = None
    known_hosts: Path | None = None


def may_be_token(variable: str) -> bool:
    """A repository's owner chooses the variable, and the host it is sent to: what is ours stays ours."""
    return variable.upper().startswith(TOKENS) or not is_own(variable)


def secret_from(variable: str, user: str = "", environ: Mapping[str, str] | None = None) -> Secret:
    """The secret in the named environment variable of this replica."""
    if not VARIABLE.fullmatch(variable) or not may_be_token(variable):
        raise _no_secret(Trouble.BAD_CONFIG, "the variable named for the token is not one for tokens")
    value = (os.environ if environ is None else environ).get(variable, "")
    if not value:
        raise _no_secret(Trouble.AUTH, f"the variable {variable} is not set on this replica")
    if not value.isprintable():
        raise _no_secret(Trouble.AUTH, f"the variable {variable} holds control characters")
    return Secret(value, user)


def _no_secret(trouble: Trouble, what: str) -> SourceFailed:
    return SourceFailed(source="credentials", trouble=trouble, what=what)


def git_environment(
    scratch: Path, pinned: Pinned | None, secret: Secret | None, ssh: SshFiles
) -> dict[str, str]:
    """For git: with the way to a server, or without one (`pinned` None) for reading a mirror."""
    protocol = pinned.of.scheme if pinned else "none"
    config = {
        "core.hooksPath": "/dev/null",
        "core.symlinks": "false",
        "core.fsmonitor": "false",
        "core.alternateRefsCommand": "",
        "credential.helper": "",
        "protocol.allow": "never",
        f"protocol.{protocol}.allow": "always",
        "protocol.ext.allow": "never",
        "http.followRedirects": "false",  # and with them the alternates of a dumb server
        "http.sslVerify": "true",
        "http.lowSpeedLimit": "1",
        "http.lowSpeedTime": str(LOW_SPEED_SECONDS),
        "transfer.bundleURI": "false",
        "fetch.uriProtocols": "",
        "submodule.recurse": "false",
        "fetch.recurseSubmodules": "false",
        "maintenance.auto": "false",
        "gc.auto": "0",
        "log.showSignature": "false",
        # names of commits are given whole; else git looks for each among the refs, and that takes long
        "core.warnAmbiguousRefs": "false",
    }
    if pinned and protocol in ("https", "http"):
        of = pinned.of
        config["http.curloptResolve"] = f"{of.host}:{of.port}:{','.join(map(_bare, pinned.addresses))}"
        if secret:
            config[f"http.{of.url}.extraHeader"] = secret.header
    environment = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_FLUSH": "0",  # else each commit is a write of its own, and each write one of our turns
        "GIT_SSH_VARIANT": "ssh",
        "GIT_SSH_COMMAND": shlex.join(_ssh(pinned, ssh)),
    }
    return _clean(scratch) | environment | _as_variables(config)


def _as_variables(config: Mapping[str, str]) -> dict[str, str]:
    pairs = {"GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):
        pairs[f"GIT_CONFIG_KEY_{number}"] = key
        pairs[f"GIT_CONFIG_VALUE_{number}"] = value
    return pairs


def svn_environment(scratch: Path, pinned: Pinned, ssh: SshFiles) -> dict[str, str]:
    # svn cuts this at blanks, without a shell; a path with a blank in it could not be said.
    return _clean(scratch) | {"SVN_SSH": " ".join([*_ssh(pinned, ssh), "--"])}


def svn_arguments(scratch: Path, secret: Secret | None, user: str) -> list[str]:
    """What every call of svn has: no question, no memory, no configuration, no trust beyond the system's."""
    options = (
        f"servers:global:http-timeout={LOW_SPEED_SECONDS}",
        "servers:global:store-plaintext-passwords=no",
        "config:auth:password-stores=",
        "config:helpers:diff-cmd=",
    )
    arguments = ["--non-interactive", "--no-auth-cache", "--config-dir", str(scratch / "svn")]
    for option in options:
        arguments += ["--config-option", option]
    if user:
        arguments += ["--username", user]
    if secret:
        arguments += ["--password-from-stdin"]
    return arguments


def _clean(scratch: Path) -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {"PATH": path, "HOME": str(scratch), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _ssh(pinned: Pinned | None, files: SshFiles) -> Sequence[str]:
    options = [
        "LogLevel=ERROR",
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        f"ConnectTimeout={CONNECT_SECONDS}",
    ]
    options += [
        "ServerAliveInterval=15",
        "ServerAliveCountMax=4",
        "ProxyCommand=none",
        "PermitLocalCommand=no",
    ]
    options += ["ForwardAgent=no", "ClearAllForwardings=yes", "ControlPath=none", "UpdateHostKeys=no"]
    if files.identity:
        options += [f"IdentityFile={files.identity}", "IdentitiesOnly=yes"]
    if files.known_hosts:
        options += [f"UserKnownHostsFile={files.known_hosts}", "GlobalKnownHostsFile=/dev/null"]
    if pinned and pinned.addresses:
        alias = pinned.of.host if pinned.of.port == 22 else f"[{pinned.of.host}]:{pinned.of.port}"
        options += [f"HostName={pinned.addresses[0]}", f"HostKeyAlias={alias}"]
    command = ["ssh", "-F", "/dev/null"]
    for option in options:
        command += ["-o", option]
    return command


def _bare(address: str) -> str:
    return f"[{address}]" if ":" in address else address
