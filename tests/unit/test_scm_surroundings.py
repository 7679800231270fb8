"""Secrets: where they come from, and where they are not seen."""

from pathlib import Path

import pytest

from actors.scm.address import AddressRules, Pinned, parse
from actors.scm.backoff import Trouble
from actors.scm.process import scrubbed
from actors.scm.records import SourceFailed
from actors.scm.surroundings import (
    Secret,
    SshFiles,
    git_environment,
    secret_from,
    svn_arguments,
    svn_environment,
)

RULES = AddressRules(allow_private=True, allow_http=True)
HERE = Path("/scratch")


def test_a_secret_is_never_shown() -> None:
    secret = Secret("hunter2", "me")
    assert "hunter2" not in repr(secret)
    text = f"bad: https://me:hunter2@x/ {secret.header} {secret.value}\x1b[31m"
    clean = scrubbed(text, secret.forms)
    assert not any(form in clean for form in secret.forms)
    assert "\x1b" not in clean
    assert scrubbed("see https://a:b@x/ and ssh://git@x/") == "see https://***@x/ and ssh://git@x/"


def test_a_secret_comes_from_the_variable_that_is_named() -> None:
    assert secret_from("MY_TOKEN", environ={"MY_TOKEN": "x"}) == Secret("x")
    assert secret_from("TENURE_SCM_TOKEN", environ={"TENURE_SCM_TOKEN": "x"}) == Secret("x")
    with pytest.raises(SourceFailed, match="MY_TOKEN is not set") as absent:
        secret_from("MY_TOKEN", environ={})
    assert absent.value.trouble is Trouble.AUTH
    with pytest.raises(SourceFailed):
        secret_from("MY_TOKEN", environ={"MY_TOKEN": "x\ny"})


@pytest.mark.parametrize(
    "name", ["TENURE_DATABASE_URL", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "a-b", "", "A=B"]
)
def test_our_own_variables_are_sent_to_nobody(name: str) -> None:
    with pytest.raises(SourceFailed) as refusal:
        secret_from(name, environ={name: "secret"})
    assert refusal.value.trouble is Trouble.BAD_CONFIG
    assert "secret" not in str(refusal.value)


def test_git_gets_its_secret_as_a_header_for_one_address_and_the_address_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", "postgres://x")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    pinned = Pinned(parse("https://git.example.com/r.git", "git", RULES), ("1.2.3.4", "2001:db8::1"))
    env = git_environment(HERE, pinned, Secret("hunter2", "me"), SshFiles())
    count = int(env["GIT_CONFIG_COUNT"])
    config = {env[f"GIT_CONFIG_KEY_{number}"]: env[f"GIT_CONFIG_VALUE_{number}"] for number in range(count)}
    assert config["http.https://git.example.com/r.git.extraHeader"].startswith("Authorization: Basic ")
    assert config["http.curloptResolve"] == "git.example.com:443:1.2.3.4,[2001:db8::1]"
    assert config["http.followRedirects"] == "false"
    assert (config["protocol.allow"], config["protocol.https.allow"]) == ("never", "always")
    assert env["GIT_ALLOW_PROTOCOL"] == "https"
    assert "hunter2" not in "".join(env.values())
    assert "TENURE_DATABASE_URL" not in env
    assert "GIT_DIR" not in env


def test_a_mirror_is_read_without_any_way_out() -> None:
    env = git_environment(HERE, None, None, SshFiles())
    assert env["GIT_ALLOW_PROTOCOL"] == "none"


def test_svn_gets_its_secret_through_standard_input() -> None:
    arguments = svn_arguments(HERE, Secret("hunter2"), "me")
    assert "--password-from-stdin" in arguments
    assert "hunter2" not in " ".join(arguments)
    assert {"--non-interactive", "--no-auth-cache", "--config-dir"} <= set(arguments)
    assert not any("trust" in argument for argument in arguments)


def test_ssh_is_told_the_address_and_asks_for_the_key_of_the_name() -> None:
    pinned = Pinned(parse("svn+ssh://me@svn.example.com:2222/r", "svn", RULES), ("1.2.3.4",))
    files = SshFiles(Path("/keys/id"), Path("/keys/known_hosts"))
    command = svn_environment(HERE, pinned, files)["SVN_SSH"].split(" ")
    assert {"HostName=1.2.3.4", "HostKeyAlias=[svn.example.com]:2222", "BatchMode=yes"} <= set(command)
    assert {"StrictHostKeyChecking=yes", "IdentityFile=/keys/id", "ProxyCommand=none"} <= set(command)
    assert command[-1] == "--"
