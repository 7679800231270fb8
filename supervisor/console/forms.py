"""Forms: what a browser posts, who may, and the few things that are read from it.

A route that changes something takes `form: Form` and who acts: `operator: Operator` or `admin: Admin`. That
the form came from a page of ours is the gate's business.
"""

from typing import Annotated, Final

from fastapi import Depends
from starlette.datastructures import FormData

from supervisor.api.csrf import checked_form
from supervisor.api.principal import Needs, Principal, Role
from supervisor.errors import BadInput

MOST_RUNS: Final = 200


Form = Annotated[FormData, Depends(checked_form)]
Operator = Annotated[Principal, Depends(Needs(Role.OPERATE))]
Admin = Annotated[Principal, Depends(Needs(Role.ADMIN))]


def text_of(form: FormData, name: str, *, most: int = 2000) -> str:
    value = form.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise BadInput(what=f"the field {name} is too long")
    return value.strip()


def run_ids_of(form: FormData) -> list[int]:
    """The runs that were ticked."""
    given = form.getlist("run")
    if not given:
        raise BadInput(what="no run was chosen: tick the runs first")
    if len(given) > MOST_RUNS:
        raise BadInput(what=f"at most {MOST_RUNS} runs at once")
    numbers = [
        one for one in given if isinstance(one, str) and one.isascii() and one.isdigit() and len(one) < 19
    ]
    if len(numbers) != len(given):
        raise BadInput(what="a run is a number")
    return [int(one) for one in numbers]
