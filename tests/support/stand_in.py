"""A stand-in for a replica, for tests of what runs replicas: answers /readyz, records its life, ends on TERM.

STAND_IN_DIR is where it writes `<port>.<pid>` with what it was given; STAND_IN_EXIT makes it end at once
with that code; STAND_IN_DEAF makes it ignore SIGTERM.
"""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import FrameType

from supervisor.handover import receive_environment


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        pass


def end(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    receive_environment()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "STAND_IN_DEAF" in os.environ else end)
    given = {name: value for name, value in os.environ.items() if name.startswith("TENURE_")}
    port = int(given["TENURE_HTTP_PORT"])
    record = Path(os.environ["STAND_IN_DIR"], f"{port}.{os.getpid()}")
    record.with_suffix(".new").write_text(json.dumps(given))
    record.with_suffix(".new").rename(record)
    if code := os.environ.get("STAND_IN_EXIT"):
        sys.exit(int(code))
    HTTPServer(("127.0.0.1", port), Answer).serve_forever()


if __name__ == "__main__":
    main()
