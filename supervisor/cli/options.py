"""The options of a job, shared by `job add` and `job set`."""

from typing import Annotated

import typer

Domain = Annotated[str | None, typer.Option(help="Whose work it is, such as command.", show_default=False)]
Payload = Annotated[
    str | None, typer.Option(help="A JSON object, @file or - for standard input.", show_default=False)
]
Action = Annotated[str | None, typer.Option(help="Which of the domain's actions.", show_default=False)]
MaxAttempts = Annotated[
    int | None, typer.Option(min=1, max=1000, help="How often it may be started.", show_default="3")
]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, max=31536000, help="Seconds of one attempt; 0 = none.", show_default="none"),
]
Priority = Annotated[
    int | None, typer.Option(min=-1000000, max=1000000, help="Larger goes first.", show_default="0")
]
Concurrency = Annotated[
    int | None, typer.Option(min=0, max=1000000, help="How many at a time; 0 = any.", show_default="any")
]
Backoff = Annotated[
    float | None,
    typer.Option(min=0, max=86400, help="Seconds before attempt 2; doubled then.", show_default="5"),
]
BackoffMax = Annotated[
    float | None, typer.Option(min=0, max=604800, help="The longest back-off, seconds.", show_default="600")
]
