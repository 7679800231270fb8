"""Tasks for chambers that misbehave when told to."""

import ctypes
import os
import resource
import signal
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

from supervisor.chamber_failure import TaskFailed

hoard: list[bytearray] = []


def obey(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    deed = DEEDS[request["deed"]]
    answer: dict[str, Any] = deed(request, handles)
    return answer


def _echo(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    return {"said": request.get("say"), "pid": os.getpid()}


def _copy(_request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    return {"bytes": os.write(handles[1], os.read(handles[0], 1 << 20)), "handles": handles}


def _fail(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    raise TaskFailed("TEST_FAILED", request.get("say", "as told"))


def _raise(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    raise KeyError("a bug")


def _segfault(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    ctypes.string_at(1)
    return {}


def _abort(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    os.abort()


def _leave(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    os._exit(7)


def _loop(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    while True:
        pass


def _burn(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    end = time.process_time() + request["seconds"]
    while time.process_time() < end:
        pass
    return {}


def _block(_request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    for handle in handles:
        os.write(handle, b"%d" % os.getpid())
    # The whole interpreter, not only this thread.
    ctypes.PyDLL(None).sleep(600)
    return {}


def _hoard(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    hoard.append(bytearray(b"x") * request["bytes"])
    return {"pid": os.getpid()}


def _grow(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    written = 0
    try:
        while written < request["bytes"]:
            written += os.write(handles[0], bytes(65536))
    except OSError as error:
        return {"written": written, "errno": error.errno}
    return {"written": written, "errno": 0}


def _talk(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    return {"long": "x" * request["length"]}


def _nonsense(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    # What a child could say that was taken over by its input.
    line = next(n for n in range(3, 8192) if _is_socket(n))
    socket.socket(fileno=line).send(request["bytes"].encode())
    time.sleep(600)
    return {}


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def _try(request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    outcomes: dict[str, Any] = {}
    for name in request["attempts"]:
        try:
            ATTEMPTS[name](request)
        except OSError as error:
            outcomes[name] = error.errno
        else:
            outcomes[name] = 0
    return outcomes


def _surroundings(_request: dict[str, Any], _handles: list[int]) -> dict[str, Any]:
    limits = {
        name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("CORE", "AS", "FSIZE")
    }
    handles = [number for number in range(8192) if _open(number)]
    return {"environment": dict(os.environ), "handles": handles, "cwd": str(Path.cwd()), "limits": limits}


def _open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _fork(_request: dict[str, Any]) -> None:
    if os.fork() == 0:
        os._exit(0)


def _thread(_request: dict[str, Any]) -> None:
    thread = threading.Thread(target=time.time)
    thread.start()
    thread.join()


def _close(handle: int) -> None:
    os.close(handle)


ATTEMPTS: dict[str, Any] = {
    "read": lambda request: _close(os.open(request["path"], os.O_RDONLY)),
    "write": lambda request: _close(os.open(f"{request['path']}.new", os.O_WRONLY | os.O_CREAT, 0o600)),
    "remove": lambda request: Path(request["path"]).unlink(),
    "socket": lambda _: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    "unix": lambda _: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close(),
    "fork": _fork,
    "exec": lambda _: os.execv("/bin/true", ["true"]),  # noqa: S606  (it must fail)
    "kill": lambda _: os.kill(os.getppid(), signal.SIGCONT),
    "pidfd": lambda _: _close(os.pidfd_open(os.getppid())),
    "thread": _thread,
}
DEEDS: dict[str, Any] = {
    "echo": _echo, "copy": _copy, "fail": _fail, "raise": _raise, "segfault": _segfault, "abort": _abort,
    "leave": _leave, "loop": _loop, "burn": _burn, "block": _block, "hoard": _hoard, "grow": _grow,
    "talk": _talk, "nonsense": _nonsense, "try": _try, "surroundings": _surroundings,
}  # fmt: skip
