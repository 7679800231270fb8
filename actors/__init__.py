"""The domains that ship with Tenure. A new actor is one line in ROSTER."""

from actors import command
from supervisor import Actor

ROSTER: tuple[Actor, ...] = (command.ACTOR,)
