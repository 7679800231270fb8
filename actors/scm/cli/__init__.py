"""What this domain adds to the command line: `tenure repo`, `sync`, `evidence` and `identity`."""

from collections.abc import Mapping

import typer

from actors.scm.cli import evidence, identity, repo, sync


def commands() -> Mapping[str, typer.Typer]:
    return {
        "repo": repo.app,
        "sync": sync.app,
        "evidence": evidence.app,
        "identity": identity.app,
    }
