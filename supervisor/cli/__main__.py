"""`python -m supervisor.cli`, which is how a fleet starts its replicas."""

import sys

from supervisor.cli.app import enter

if __name__ == "__main__":
    sys.exit(enter())
