"""The parent of all launchers of one replica: forks them, and buries what a killed launcher leaves.

One small process per replica, started without packages, that forks a launcher per command: a fork of it costs
about a millisecond where starting an interpreter costs many times that. It is a child subreaper and has no
deadline of its own, so when the dead man's timer kills a launcher whose command left children, they fall to
the warden, and every child of the warden that is not a launcher is a stray to be killed. A timer continues it
when it is stopped.

Protocol: each message on the socket carries four descriptors: control, spec, stdout, stderr; a fifth is the
Landlock ruleset of a command for which places are closed. The warden never reads the spec. It keeps a copy
of `control` until launcher and strays are gone, so that end of file there tells the replica that nothing is
left. End of file on its own socket means that the replica is gone: no further launchers, and the warden exits
after the last one.
"""

import array
import gc
import os
import signal
import socket
import sys
import traceback

from supervisor.deadman import KernelTimer
from supervisor.descendants import sweep
from supervisor.launcher import Wake, boottime, launch
from supervisor.prctl import adopt_orphans, close_memory

CONTINUE_EVERY_SECONDS = 1.0
RETRY_SECONDS = 0.05
MOST_HANDLES = 5


class Warden:
    def __init__(self, requests: socket.socket) -> None:
        self._requests: socket.socket | None = requests
        self._launchers: dict[int, socket.socket] = {}
        self._mourned: list[socket.socket] = []
        self._wake = Wake(signal.SIGCHLD, signal.SIGCONT)
        self._alarm = KernelTimer(signal.SIGCONT)
        self._alarm.arm(boottime(), every=CONTINUE_EVERY_SECONDS)

    def run(self) -> None:
        while self._requests or self._launchers or self._mourned:
            self._wake.wait(RETRY_SECONDS if self._mourned else None, self._requests)
            self._reap()
            self._bury_strays()
            self._accept()

    def _accept(self) -> None:
        while self._requests:
            try:
                message, handles = _receive(self._requests)
            except BlockingIOError:
                return
            if not message:
                self._requests.close()
                self._requests = None
            elif message == b"launch%d" % len(handles):
                self._fork(*handles)
            else:  # out of descriptors: what did arrive is closed, and the replica sees end of file
                for handle in handles:
                    os.close(handle)

    def _fork(
        self, control_file: int, spec_file: int, stdout: int, stderr: int, ruleset: int | None = None
    ) -> None:
        control = socket.socket(fileno=control_file)
        try:
            pid = os.fork()
        except OSError:
            traceback.print_exc()
            control.close()
        else:
            if pid == 0:
                self._live_as_launcher(control, spec_file, stdout, stderr, ruleset)
            self._launchers[pid] = control
        for handle in (spec_file, stdout, stderr, ruleset):
            if handle is not None:
                os.close(handle)

    def _live_as_launcher(
        self, control: socket.socket, spec_file: int, stdout: int, stderr: int, ruleset: int | None
    ) -> None:
        code = 1
        try:
            # Another command's control held open here would hide its end from the replica.
            for other in [*self._launchers.values(), *self._mourned, self._requests]:
                if other:
                    other.close()
            launch(control, spec_file, stdout, stderr, ruleset)
            code = 0
        except BaseException:  # noqa: BLE001  (a forked child must never fall back into its parent's code)
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                control = self._launchers.pop(ended[0], None)
                if control and ended[1] == 0:
                    control.close()
                elif control:
                    self._mourned.append(control)
        except ChildProcessError:
            return

    def _bury_strays(self) -> None:
        if self._mourned and sweep(os.getpid(), spare=self._launchers).killed == 0:
            while self._mourned:
                self._mourned.pop().close()


def _receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    """Like socket.recv_fds, which ignores its flags: commands would inherit the descriptors."""
    handles = array.array("i")
    message, parts, _, _ = requests.recvmsg(
        16, socket.CMSG_SPACE(MOST_HANDLES * handles.itemsize), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            handles.frombytes(data[: len(data) - len(data) % handles.itemsize])
    return message, list(handles)


def main() -> None:
    close_memory()  # descriptors of all commands come through here
    adopt_orphans()
    gc.disable()
    gc.freeze()
    Warden(socket.socket(fileno=int(sys.argv[1]))).run()
