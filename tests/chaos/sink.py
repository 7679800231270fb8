"""The effect sink: one process, one socket, one total order. `python sink.py ADDRESS PORT FILE`.

A client sends `root run attempt epoch claim pid` on a line and gets `accepted` or `refused`. Per root the
token (epoch, attempt) never goes back: an older one after a newer one is refused, and so is another claim
under the same token. Every offer is logged with its place in the order, the refused ones too. Run by its
path, without packages.
"""

import asyncio
import json
import os
import sys
import time


class Sink:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._newest: dict[str, tuple[int, int, str]] = {}
        self._seq = 0

    def offer(self, line: str) -> bool:
        root, run, attempt, epoch, claim, pid = line.split()
        token = int(epoch), int(attempt)
        newest = self._newest.get(root)
        reason = _refusal(newest, token, claim)
        if reason is None:
            self._newest[root] = (*token, claim)
        self._seq += 1
        entry = {
            "seq": self._seq,
            "t": round(time.clock_gettime(time.CLOCK_BOOTTIME), 6),
            "root": int(root),
            "run": int(run),
            "attempt": int(attempt),
            "epoch": int(epoch),
            "claim": claim,
            "pid": int(pid),
            "accepted": reason is None,
            "reason": reason,
        }
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        return reason is None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(b"accepted\n" if self.offer(line.decode()) else b"refused\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def _refusal(newest: "tuple[int, int, str] | None", token: tuple[int, int], claim: str) -> str | None:
    if newest is None or token > newest[:2]:
        return None
    if token < newest[:2]:
        return f"older than {newest[0]}/{newest[1]}"
    return None if claim == newest[2] else "another claim under the same token"


async def main(address: str, port: str, path: str) -> None:
    sink = Sink(path)
    server = await asyncio.start_server(sink.serve, address, int(port))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
