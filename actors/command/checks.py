"""What is checked and said before commands run: their user, and what it can reach."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervisor.config import Settings, load_settings
from supervisor.confinement import Confinement, confinement
from supervisor.errors import BadSettings
from supervisor.store import Store

if TYPE_CHECKING:
    from supervisor.doctor import Finding

ADVICE = "start Tenure as root, so that commands run as another user; or on Linux 6.12 or newer with Landlock"
ADVICE_TO_LEADERS = f"{ADVICE}; or run commands on replicas of their own, with `tenure up --no-lead`"


def complaints(settings: Settings) -> Sequence[str]:
    if settings.domain_names and "command" not in settings.domain_names:
        return ()
    try:
        confinement(settings)
    except BadSettings as error:
        return (str(error.facts["what"]),)
    return ()


def warnings(settings: Settings) -> Sequence[str]:
    if settings.domain_names and "command" not in settings.domain_names:
        return ()
    kept = confinement(settings)
    advice = ADVICE_TO_LEADERS if settings.lead else ADVICE
    return () if kept.watertight else (f"{_reach(kept)}: {advice}",)


async def findings(_store: Store) -> "list[Finding]":
    """Examine this machine and this user, which are those of the replicas where these run here."""
    from supervisor.doctor import Finding  # noqa: PLC0415  the doctor imports domains

    try:
        kept = confinement(load_settings())
    except BadSettings as error:
        return [Finding("commands", "fail", str(error.facts["what"]), "correct TENURE_COMMAND_USER")]
    if kept.user is not None:
        return [Finding("commands", "ok", f"started by this user, they run as {kept.user.name}")]
    if kept.watertight:
        return [Finding("commands", "ok", "Landlock keeps them from Tenure's files and processes")]
    return [Finding("commands", "warn", _reach(kept), ADVICE_TO_LEADERS)]


def _reach(kept: Confinement) -> str:
    if kept.closed is not None:
        return "commands can end what this user can end, Tenure's processes too"
    return "commands read and end what this user can, Tenure's files and processes too"
