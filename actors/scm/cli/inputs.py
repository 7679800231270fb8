"""What people type at the commands of this domain, checked before anything is changed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from actors.scm.address import Address, AddressRules, HostUnknown, UnsafeAddress, parse, resolve
from actors.scm.config import FILE, Sync, sync_config
from supervisor.cli.inputs import encodable, parse_instant
from supervisor.errors import BadInput
from supervisor.store import Record
from supervisor.stored_json import readable

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
REVISION: Final = re.compile(r"[0-9]{1,18}")
JSON_FIELDS: Final = frozenset(
    {"watermark_start", "watermark_end", "watermark", "head_watermark", "cursor", "accounts"}
)

SourceType = Literal["svn", "git", "gitlab_mr", "gitlab_review"]
RepoType = Literal["svn", "git", "gitlab"]
RepoName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a repository.", show_default=False)
]
Source = Annotated[SourceType, typer.Option("--source", help="Which of its sources.", show_default=False)]


class UnsafeVariable(BadInput):
    """{name!r} is not the name of a variable for a token: {what}"""

    hint = "give the name of an environment variable of the replicas, such as GITLAB_TOKEN; never the token"


def check_repo(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise BadInput(
            what=f"{name!r} cannot be the name of a repository: 1 to 63 letters, digits and . _ -, "
            "of which the first is a letter or a digit"
        )
    return name


def configured() -> Sync:
    """Of the file in the directory the command is run in."""
    return sync_config(Path.cwd() / FILE)


def check_variable(name: str) -> str:
    from actors.scm.surroundings import VARIABLE, may_be_token  # noqa: PLC0415  for this option alone

    if VARIABLE.fullmatch(name) is None:
        raise UnsafeVariable(name="..." if len(name) > 40 else name, what="it has letters, digits and _")
    if not may_be_token(name):
        raise UnsafeVariable(name=name, what="it is one of ours")
    return name


async def judge_address(url: str, kind: RepoType, config: Sync) -> tuple[Address, str | None]:
    """The address, and a warning where its host is not known here; or UnsafeAddress.

    A replica judges it again with every sync: what a name means changes, and its own rules count.
    """
    encodable(url, "the URL")
    rules = AddressRules(config.allow_private_addresses, config.allow_http, config.allow_local_files)
    address = parse(url, "svn" if kind == "svn" else "git", rules)
    if kind == "gitlab" and (address.scheme not in {"https", "http"} or address.user):
        raise UnsafeAddress(what="GitLab is asked over https, without a user in the address")
    try:
        await resolve(address, rules)
    except HostUnknown as unknown:
        return address, str(unknown)
    return address, None


def parse_bound(text: str, source: SourceType) -> int | str:
    """Where a range begins or ends: a revision of svn, an instant of the others."""
    if source != "svn":
        return parse_instant(encodable(text, "the instant")).isoformat()
    if REVISION.fullmatch(text) is None:
        raise BadInput(what=f"{text!r} is no revision: a range of svn is counted in revisions, such as 120")
    return int(text)


def plain(row: Record | Mapping[str, Any]) -> dict[str, Any]:
    """A row for people and scripts: its JSON is JSON, and the clock it came with is left out."""
    return {
        name: readable(value) if isinstance(value, str) and _is_json(name) else value
        for name, value in row.items()
        if name != "now"
    }


def _is_json(name: str) -> bool:
    return name.endswith("_json") or name in JSON_FIELDS
