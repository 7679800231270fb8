"""Inside a chamber: the child's limits, then one request after another until the replica hangs up.

Order matters: the limits, Landlock and the filter are in force before the task's module is loaded, so nothing
that is loaded can have started a thread outside of them.

The packages above the task's module are NOT executed (they would load the replica's half of the domain):
empty packages stand in for them, and the task imports its siblings by their full names.

One JSON object a message, on a SOCK_SEQPACKET pair:
  child:    {"ready": {"landlock": abi, "seccomp": bool}}   or   {"refused": text}
  replica:  {"id", "deadline": boottime, "request": {...}}  with the descriptors of the request
  child:    {"id", "resident_bytes"} with {"result": {...}}, {"failed": [code, text]} or {"exhausted": true}
"""

import array
import gc
import importlib
import json
import math
import os
import resource
import site
import socket
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Any

from supervisor.chamber_failure import TaskFailed, clean
from supervisor.chamber_seccomp import forbid
from supervisor.deadman import DeadMan
from supervisor.landlock import restrict
from supervisor.prctl import die_with_parent, refuse_new_privileges

MAX_MESSAGE_BYTES = 32768
MAX_HANDLES = 8
SHARED_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

Task = Callable[[dict[str, Any], list[int]], dict[str, Any]]


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    spec = json.loads(sys.argv[2])
    die_with_parent()
    if os.getppid() != spec["parent"]:  # it died before we asked
        return
    dead_man = DeadMan()
    dead_man.arm(spec["start_deadline"])
    try:
        task, guards = _prepare(spec)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever a module raises while it is loaded)
        _say(control, {"refused": clean(f"{type(error).__name__}: {error}")})
        return
    dead_man.disarm()
    _say(control, {"ready": guards})
    Servant(control, task, dead_man, spec["cpu_seconds"], spec["memory_file"]).serve()


class Servant:
    def __init__(
        self, control: socket.socket, task: Task, dead_man: DeadMan, cpu_seconds: float, memory_file: int
    ) -> None:
        self._control = control
        self._task = task
        self._dead_man = dead_man
        self._cpu_seconds = cpu_seconds
        self._memory_file = memory_file

    def serve(self) -> None:
        while (received := self._receive()) is not None:
            order, handles = received
            self._dead_man.arm(order["deadline"])
            _limit_cpu(self._cpu_seconds)
            answer = self._perform(order["request"], handles)
            for handle in handles:
                os.close(handle)
            self._dead_man.disarm()
            _say(self._control, {"id": order["id"], "resident_bytes": self._resident_bytes(), **answer})
            if "exhausted" in answer:
                return

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        handles = array.array("i")
        space = socket.CMSG_SPACE(MAX_HANDLES * handles.itemsize)
        message, parts, flags, _ = self._control.recvmsg(MAX_MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in parts:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handles.frombytes(data[: len(data) - len(data) % handles.itemsize])
        if not message or flags & socket.MSG_CTRUNC:
            return None
        return json.loads(message), list(handles)

    def _perform(self, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        try:
            return {"result": self._task(request, handles)}
        except TaskFailed as failure:
            return {"failed": [failure.code, str(failure)]}
        except MemoryError:
            return {"exhausted": True}
        except Exception as error:  # noqa: BLE001  (a bug of the task is its answer, not the end of the child)
            return {"failed": ["TASK_FAILED", clean(f"{type(error).__name__}: {error}")]}

    def _resident_bytes(self) -> int:
        # Opened before Landlock closed /proc.
        return int(os.pread(self._memory_file, 128, 0).split()[1]) * resource.getpagesize()


def _prepare(spec: dict[str, Any]) -> tuple[Task, dict[str, Any]]:
    spec["memory_file"] = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    refuse_new_privileges()
    for limit, value in (
        (resource.RLIMIT_AS, spec["memory_bytes"]),
        (resource.RLIMIT_FSIZE, spec["output_bytes"]),
        (resource.RLIMIT_NOFILE, spec["open_files"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(limit, value)
    sys.path[:] = spec["path"]
    module, _, function = spec["task"].partition(":")
    packages = list(_hollow(module))
    readable = [*_interpreter(), *packages, *spec["readable"]]
    guards = {"landlock": restrict(readable), "seccomp": forbid()}
    task: Task = getattr(importlib.import_module(module), function)
    gc.freeze()
    return task, guards


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _limit_cpu(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )


def _hollow(module: str) -> Iterator[str]:
    """Empty packages in place of those above `module`; their directories."""
    yield from sys.modules["supervisor"].__path__
    names = module.split(".")[:-1]
    path: list[str] | None = None
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        if name not in sys.modules:
            found = PathFinder.find_spec(name, path)
            if found is None or found.submodule_search_locations is None:
                raise ModuleNotFoundError(f"no package {name}")
            package = types.ModuleType(name)
            package.__path__ = list(found.submodule_search_locations)
            sys.modules[name] = package
        path = list(sys.modules[name].__path__)
        yield from path


def _interpreter() -> Iterator[str]:
    yield from SHARED_LIBRARIES
    yield from PLAIN_DEVICES
    yield from filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    yield from (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from site.getsitepackages()
    for place in sys.path:
        if os.path.basename(place) in ("site-packages", "dist-packages", "lib-dynload"):  # noqa: PTH119
            yield place


def _say(control: socket.socket, answer: dict[str, Any]) -> None:
    message = json.dumps(answer).encode()
    if len(message) > MAX_MESSAGE_BYTES:
        too_long = {"failed": ["TASK_FAILED", "the answer of the task is too long"]}
        message = json.dumps({"id": answer.get("id"), "resident_bytes": 0, **too_long}).encode()
    control.send(message)
