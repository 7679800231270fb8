"""`python -m supervisor.cli`, which is how a fleet starts its replicas."""

import sys

from supervisor.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
