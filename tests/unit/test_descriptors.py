"""The limit on open files, in a process of its own: it cannot be raised again."""

import subprocess
import sys

RAISED = """
import resource
from supervisor.descriptors import open_file_limit, raise_limit, restore_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
print(raise_limit(), open_file_limit(), raise_limit())
restore_limit(raise_limit())
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_it_is_raised_to_the_hard_one_and_given_back() -> None:
    answer = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["100", "300", "100", "100", "300"]
