"""`tenure completion`: the script with which a shell completes commands, options, jobs and runs."""

import os
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, get_args

import typer
from typer.completion import (  # type: ignore[attr-defined]  # it has them from a module of its own
    completion_init,
    get_completion_script,
)

from supervisor.cli import names, output
from supervisor.cli.inputs import JobName, RunId
from supervisor.cli.session import Json
from supervisor.jobrun import STATES

VARIABLE: Final = "_TENURE_COMPLETE"
PATIENCE_SECONDS: Final = 2 * names.LOOKUP_SECONDS

T = TypeVar("T")

Shell = Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Whose script.", show_default=False)]


def completion(shell: Shell, as_json: Json = False) -> int:
    """Print the completion script of a shell.

    It completes commands and options, and jobs and runs from the database where that answers at once.

    To have it in every new shell:

    - bash: `echo 'eval "$(tenure completion bash)"' >> ~/.bashrc`
    - zsh: `tenure completion zsh > ~/.zfunc/_tenure`, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
    - fish: `tenure completion fish > ~/.config/fish/completions/tenure.fish`

    Example: `eval "$(tenure completion bash)"` tries it in this shell
    """
    script = get_completion_script(prog_name="tenure", complete_var=VARIABLE, shell=shell)
    if as_json:
        output.print_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(f"{script}\n")
    return 0


def answer(app: typer.Typer) -> NoReturn:
    """Of a process that such a script started."""
    learn_names()
    code: Any = 0
    try:
        app([], standalone_mode=False, prog_name="tenure")
    except SystemExit as done:
        code = done.code
    sys.stdout.flush()
    # a look at the database that hangs, such as at a name server, is left behind: the shell waits for us
    os._exit(code if isinstance(code, int) else 0)


def learn_names() -> None:
    """Before the commands are made, because they are made of these arguments."""
    completion_init()
    for argument, known in ((RunId, run_ids), (JobName, job_names)):
        get_args(argument)[1].autocompletion = known


def run_ids(incomplete: str) -> Iterator[tuple[str, str]]:
    for number, job, state in _in_time(names.runs):
        if str(number).startswith(incomplete):
            yield str(number), f"{job} {state}"


def job_names(incomplete: str) -> list[str]:
    return _in_time(lambda: names.job_names(incomplete))


def states(incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete.upper())]


def _in_time(look: Callable[[], list[T]]) -> list[T]:
    """What it found; nothing when it takes longer than somebody waits for a key."""
    found: list[T] = []
    thread = Thread(target=lambda: found.extend(look()), daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return list(found)
