"""A small system-call filter: no new process, no program, no socket, no hand on another process.

A list of what is forbidden, not of what is allowed: decoders and interpreters need many calls, and the disk
is Landlock's business. Forbidden calls answer EPERM, so a library that only tries goes on. NOT a jail against
a kernel bug. Where the machine is neither x86_64 nor aarch64, or the kernel has no filters, there is none.
"""

import errno
import os
import platform

from supervisor.bpf import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURE,
    AT_LEAST,
    EQUAL,
    ERRNO,
    FIRST_ARGUMENT,
    KILL,
    LOAD,
    MACHINES,
    NUMBER,
    X32,
    answer,
    put_in_force,
    step,
    when,
)

CLONE_THREAD = 0x00010000

# Name: number on x86_64, on aarch64. -1: the machine has no such call.
FORBIDDEN = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "bind": (49, 200), "listen": (50, 201),
    "socketpair": (53, 199), "accept4": (288, 242), "fork": (57, -1), "vfork": (58, -1),
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "mount": (165, 40), "chroot": (161, 51), "pivot_root": (155, 41),
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273),
}  # fmt: skip
CLONE, CLONE3, TGKILL, PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)


def program(machine: str, pid: int) -> bytes:
    column, architecture = MACHINES[machine]
    refuse = answer(ERRNO | errno.EPERM)
    first, allow = step(LOAD, FIRST_ARGUMENT), answer(ALLOW)
    code = step(LOAD, ARCHITECTURE) + step(EQUAL, architecture, 1, 0) + answer(KILL) + step(LOAD, NUMBER)
    if machine == "x86_64":
        code += step(AT_LEAST, X32, 0, 1) + refuse
    for numbers in FORBIDDEN.values():
        if numbers[column] >= 0:
            code += when(numbers[column], refuse)
    # The flags of clone3 lie behind a pointer: libraries that hear ENOSYS take clone, whose flags do not.
    code += when(CLONE3[column], answer(ERRNO | errno.ENOSYS))
    code += when(CLONE[column], first, step(ANY_BIT, CLONE_THREAD, 1, 0), refuse, allow)
    code += when(TGKILL[column], first, step(EQUAL, pid, 1, 0), refuse, allow)
    code += when(PRLIMIT[column], first, step(EQUAL, 0, 1, 0), refuse, allow)
    return code + allow


def forbid() -> bool:
    """Put the filter in force for this thread and what it starts; False where there is none."""
    machine = platform.machine()
    if machine not in MACHINES:
        return False
    return put_in_force(program(machine, os.getpid()))
