"""The process that runs one command and outlives none of it.

The warden forks a launcher per command. It is a child subreaper and holds two kernel timers: SIGCONT at the
deadline, so that a stopped launcher wakes up to do its duty, and SIGKILL at deadline + kill_seconds, the dead
man's timer. The command leads its own session and dies with the launcher (PR_SET_PDEATHSIG); whatever it
leaves behind falls to the launcher, or, where the launcher itself was killed, to the warden. So no command
runs without somebody who ends it. Where the command has another user, the launcher keeps the replica's: it
has to be allowed to signal every process of the command.

The replica and the launcher speak over one SOCK_SEQPACKET pair, one JSON object a message:
  replica:   {"deadline": boottime}   {"terminate": true}
  launcher:  {"started": [pid, launcher pid, launcher start]}  or  {"refused": [what, errno]}
             {"ended": {"exit_code", "signal", "stopped", "survivors"}}
`stopped` says who ended it: none (the command itself), terminated, expired (deadline), eof (the replica is
gone). What to run comes as JSON in an anonymous file, never in an argument list. After termination everything
gets SIGTERM and kill_seconds; at the deadline and at end of file everything gets SIGKILL at once. A stop is
final. When the command has exited by itself, what it left running is killed too: the work of a run ends with
its command.
"""

import errno
import json
import os
import select
import signal
import socket
import time
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from supervisor.command_seccomp import keep_limits_to_oneself
from supervisor.deadman import DeadMan, KernelTimer
from supervisor.descendants import descendants, look, send, sweep
from supervisor.descriptors import restore_limit
from supervisor.landlock import enforce
from supervisor.prctl import (
    adopt_orphans,
    close_memory,
    die_with_parent,
    leave_session_keyring,
    refuse_new_privileges,
)

MAX_MESSAGE_BYTES = 4096
# Ignored signals stay ignored over an exec: Python ignores the last two, nohup the first.
INHERITED_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ
)  # fmt: skip


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Spec(NamedTuple):
    """What to run, for how long at first."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    deadline: float
    kill_seconds: float
    open_files: int
    """The limit that the replica was started with."""
    umask: int | None = None
    """None: the replica's own, which closes new files to other users."""
    confined: bool = False
    user: tuple[int, int, list[int]] | None = None
    """The user, group and further groups of the command; None: those of the launcher."""


class Wake:
    """Signals as something to poll for: a handler of ours must exist, or the kernel would drop them."""

    def __init__(self, *signums: int) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for signum in signums:
            signal.signal(signum, self._noted)

    @staticmethod
    def _noted(_signum: int, _frame: FrameType | None) -> None:
        """The byte in the pipe is all that is needed."""

    def wait(self, seconds: float | None, other: socket.socket | None = None) -> None:
        """Until a signal came, `other` has something to read, or the time is up."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if other is not None:
            poll.register(other, select.POLLIN)
        poll.poll(None if seconds is None else int(min(max(seconds, 0.0), 3600.0) * 1000) + 1)
        try:
            os.read(self._read, 512)
        except BlockingIOError:
            return


class Launcher:
    def __init__(self, control: socket.socket, spec: Spec, ruleset: int | None) -> None:
        self._control = control
        self._spec = spec
        self._ruleset = ruleset
        self._wake = Wake(signal.SIGCHLD, signal.SIGCONT)
        self._dead_man = DeadMan()
        self._alarm = KernelTimer(signal.SIGCONT)
        self._command = 0
        self._status: int | None = None
        self._stopped = "none"
        self._kill_at = float("inf")
        self._rearm(spec.deadline)

    def run(self, stdout: int, stderr: int) -> None:
        self._listen()
        if self._stopped == "none" and boottime() < self._deadline:
            refusal = self._start(stdout, stderr)
            if refusal:
                self._tell({"refused": refusal})
                return
        os.close(stdout)
        os.close(stderr)
        self._watch()
        survivors = self._bury()
        self._tell({"ended": {**_outcome(self._status), "stopped": self._stopped, "survivors": survivors}})

    def _start(self, stdout: int, stderr: int) -> list[Any] | None:
        launcher = os.getpid()
        answer, report = os.pipe()
        if self._spec.user:
            _hand_over(self._spec.user, stdout, stderr)
        self._command = os.fork()
        if self._command == 0:
            _become(self._spec, launcher, stdout, stderr, report, self._ruleset)
        os.close(report)
        trouble = os.read(answer, 256)
        os.close(answer)
        if trouble:
            os.waitpid(self._command, 0)
            refusal: list[Any] = json.loads(trouble)
            return refusal
        me = look(launcher)
        self._tell({"started": [self._command, launcher, me.started if me else 0]})
        return None

    def _watch(self) -> None:
        """Until nothing is left to wait for, or everything that is left has to be killed."""
        while self._reap() and (self._status is None or self._stopped == "terminated"):
            now = boottime()
            if now >= self._deadline:
                self._stop("expired")
            if self._stopped in ("expired", "eof") or now >= self._kill_at:
                return
            self._wake.wait(min(self._deadline, self._kill_at) - now, self._control)
            self._listen()
        if self._status is None:
            self._stop("expired")

    def _listen(self) -> None:
        while True:
            try:
                message = self._control.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                self._stop("eof")
                self._kill_at = 0.0
                return
            order = json.loads(message)
            if "terminate" in order:
                self._terminate()
            elif self._stopped == "none":
                self._rearm(float(order["deadline"]))

    def _rearm(self, deadline: float) -> None:
        self._deadline = deadline
        self._alarm.arm(deadline)
        self._dead_man.arm(deadline + self._spec.kill_seconds)

    def _stop(self, why: str) -> None:
        if self._stopped == "none":
            self._stopped = why

    def _terminate(self) -> None:
        if self._stopped != "none" or self._status is not None:
            return
        self._stop("terminated")
        self._kill_at = boottime() + self._spec.kill_seconds
        for process in descendants(os.getpid()):
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a stopped process hears SIGTERM only when it goes on

    def _reap(self) -> bool:
        """Collect whoever has ended; False when no child, and so no descendant, is left."""
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid == self._command:
                    self._kill_group()
                _, status = os.waitpid(ended.si_pid, 0)
                if ended.si_pid == self._command:
                    self._status = status
        except ChildProcessError:
            return False
        return True

    def _kill_group(self) -> None:
        """The whole group in one call that no fork escapes; its number is ours until the leader is reaped."""
        if self._stopped == "terminated" and boottime() < self._kill_at:
            return
        try:
            os.killpg(self._command, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _bury(self) -> int:
        """Kill until nothing is left; returns how many this user may not signal."""
        self._kill_at = 0.0
        if self._command and self._status is None:
            self._kill_group()
        pause = 0.001
        while self._reap():
            killed, untouchable = sweep(os.getpid())
            if untouchable and not killed:
                return untouchable
            self._wake.wait(pause)
            pause = min(pause * 2, 0.1)
        return 0

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            return  # the replica is gone; the end of file says what to do


def _outcome(status: int | None) -> dict[str, int | None]:
    if status is None:
        return {"exit_code": None, "signal": None}
    code = os.waitstatus_to_exitcode(status)
    return {"exit_code": code, "signal": None} if code >= 0 else {"exit_code": None, "signal": -code}


def _hand_over(user: tuple[int, int, list[int]], *pipes: int) -> None:
    """Give pipes to the command's user: /dev/stdout is opened anew, and that asks for the right to."""
    for pipe in pipes:
        try:
            os.fchown(pipe, user[0], user[1])
        except PermissionError:
            return


def _become(
    spec: Spec, launcher: int, stdout: int, stderr: int, report: int, ruleset: int | None
) -> NoReturn:
    """In the child: turn into the command, or say what is in the way."""
    what = "start"
    try:
        os.setsid()
        _volunteer_for_oom()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for signum in INHERITED_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        restore_limit(spec.open_files)
        what = "confinement"
        _confine(spec, ruleset)
        die_with_parent()  # after the change of the user, which clears it
        if os.getppid() != launcher:  # it died before the line above could ask for this
            os._exit(1)
        what = "cwd"
        _enter(spec)
        what = "exec"
        os.execvpe(spec.argv[0], spec.argv, spec.env)  # noqa: S606  (no shell is the point)
    except OSError as error:
        code = errno.ENOENT if what == "exec" and _is_nowhere(spec) else error.errno
        os.write(report, json.dumps([what, code]).encode())
    except ValueError:
        os.write(report, json.dumps([what, 22]).encode())
    finally:
        os._exit(127)


def _confine(spec: Spec, ruleset: int | None) -> None:
    """Give up what the command shall not have: the launcher's user and keys, new privileges, the closed."""
    if spec.umask is not None:
        os.umask(spec.umask)
    if spec.user:
        user, group, groups = spec.user
        leave_session_keyring()
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    if spec.confined:
        refuse_new_privileges()
    if ruleset is not None:
        enforce(ruleset)
        keep_limits_to_oneself()


def _is_nowhere(spec: Spec) -> bool:
    """Return whether no directory of PATH has the program; one that is closed to the user hides that."""
    name, places = spec.argv[0], spec.env.get("PATH", os.defpath).split(os.pathsep)
    return "/" not in name and not any(os.path.exists(os.path.join(place, name)) for place in places)  # noqa: PTH110, PTH118


def _enter(spec: Spec) -> None:
    """Change to the working directory. The replica's own may be closed to another user, who gets `/`."""
    if spec.cwd is not None:
        os.chdir(spec.cwd)
    elif spec.user and not os.access(".", os.X_OK):
        os.chdir("/")


def _volunteer_for_oom() -> None:
    """When memory runs out the kernel shall choose the command, not the replica or those who watch it."""
    close_memory(closed=False)  # of a process that is closed, this file belongs to root
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123  (pathlib is slow to load)
            score = int(file.read())
            file.seek(0)
            file.write(str(min(1000, score + 500)))
    except OSError:
        return
    finally:
        close_memory()


def launch(control: socket.socket, spec_file: int, stdout: int, stderr: int, ruleset: int | None) -> None:
    """The life of a launcher, in a process just forked for it."""
    adopt_orphans()
    with open(spec_file, encoding="utf-8") as file:
        file.seek(0)
        spec = Spec(**json.load(file))
    Launcher(control, spec, ruleset).run(stdout, stderr)
