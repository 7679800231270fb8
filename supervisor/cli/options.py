"""The options of a job, shared by `job add` and `job set`."""

from typing import Annotated, Literal

import typer

Domain = Annotated[str | None, typer.Option(help="Whose work it is, such as command.", show_default=False)]
Payload = Annotated[
    str | None, typer.Option(help="A JSON object, @file or - for standard input.", show_default=False)
]
Parameters = Annotated[
    str | None,
    typer.Option(
        help="What callers may give: names with type, required or default, as a JSON object, @file or -.",
        show_default=False,
    ),
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
    typer.Option(
        min=0,
        max=86400,
        help="Attempt 2 waits a random time up to so many seconds; the bound doubles then.",
        show_default="5",
    ),
]
BackoffMax = Annotated[
    float | None,
    typer.Option(min=0, max=604800, help="What that bound grows to, seconds.", show_default="600"),
]
Policy = Annotated[
    Literal["allow", "forbid", "replace"] | None,
    typer.Option(
        "--concurrency-policy",
        help="When so many are live: make it and let it wait, make none, or cancel the oldest.",
        show_default="allow",
    ),
]
Cron = Annotated[
    str | None, typer.Option(help="When it runs: minute hour day month weekday.", show_default=False)
]
Timezone = Annotated[
    str | None, typer.Option(help="Whose clock --cron means, such as Europe/Berlin.", show_default="UTC")
]
Missed = Annotated[
    Literal["skip", "latest", "all"] | None,
    typer.Option(help="What was due while nobody led: none, the last, all of it.", show_default="latest"),
]
Event = Annotated[str | None, typer.Option(help="Runs on each event of this type.", show_default=False)]
NoCron = Annotated[bool, typer.Option("--no-cron", help="Take the schedule off.")]
NoEvent = Annotated[bool, typer.Option("--no-event", help="Take the event off.")]
