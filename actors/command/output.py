"""A command's output on its way into the run's log: bounded, marked where cut, never in the command's way."""

from collections.abc import Awaitable, Callable

TAIL_BYTES = 4096
LINE_CHARACTERS = 500


class Output:
    def __init__(self, log: Callable[[str, bytes], Awaitable[None]], bound_bytes: int) -> None:
        self._log = log
        self._bound_bytes = bound_bytes
        self._room_bytes = bound_bytes
        self._cut = False
        self._error_tail = b""

    async def take(self, stream: str, data: bytes) -> None:
        """Keep what there is room for and drop the rest, so that a talkative command still ends."""
        if stream == "stderr":
            self._error_tail = (self._error_tail + data)[-TAIL_BYTES:]
        kept = data[: self._room_bytes]
        self._room_bytes -= len(kept)
        if kept:
            await self._log(stream, kept)
        if len(kept) < len(data) and not self._cut:
            self._cut = True
            mark = f"\n[truncated: output beyond {self._bound_bytes} bytes is not kept]\n"
            await self._log(stream, mark.encode())

    async def remark(self, text: str) -> None:
        await self._log("stderr", f"\n{text}\n".encode())

    def last_error_line(self) -> str:
        lines = self._error_tail.decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        # The database stores no NUL, and a terminal should not be steered by somebody's output.
        return "".join(char if char.isprintable() else " " for char in last).strip()[:LINE_CHARACTERS]
