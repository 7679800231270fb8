"""Who asks: a name for the audit, and what the role permits."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final

from fastapi import Depends
from starlette.requests import Request

from supervisor.errors import Forbidden


class Role(IntEnum):
    """A larger role permits all that a smaller one does."""

    NONE = 0
    VIEW = 1
    OPERATE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    role: Role
    session: str | None = None
    """The digest of the console's session it came with; a change by it needs the form's token too."""


SHARED: Final = Principal("TENURE_API_TOKEN", Role.ADMIN)
"""The one token of the environment, or the one that `tenure up` made; a link logs in as it, too."""


NOBODY: Final = Principal("nobody", Role.NONE)
"""Who asks for one of the few paths that are open to all."""


def token_principal(name: str, role: str, session: str | None = None) -> Principal:
    """The prefix keeps a token from passing for one of the above, or for a user of the command line."""
    return Principal(f"token:{name}", Role[role.upper()], session)


def principal_of(request: Request) -> Principal:
    """Set by the gate, which lets no request through without."""
    asking = request.scope["state"]["principal"]
    assert isinstance(asking, Principal)  # noqa: S101  the gate's own
    return asking


def actor(request: Request) -> str:
    """Return the name of the principal, as the audit has it."""
    return principal_of(request).name


Actor = Annotated[str, Depends(actor)]


@dataclass(frozen=True, slots=True)
class Needs:
    """A dependency of a route: the principal, if the role is enough."""

    role: Role

    async def __call__(self, request: Request) -> Principal:
        asking = principal_of(request)
        check_role(asking, self.role)
        return asking


def check_role(asking: Principal, role: Role) -> None:
    if asking.role < role:
        raise Forbidden(needed=role.name.lower(), role=asking.role.name.lower())
