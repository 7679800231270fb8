"""The HTTP edge of a replica: probes, metrics and status. Thin, and no SQL.

`/healthz` says that the process answers, and never touches the database: a database that is down must not
make Kubernetes restart every replica. `/readyz` says that it can work. Both and `/metrics` need no token;
everything else does where TENURE_API_TOKEN is set, and without one the server is bound to loopback only.
"""

from supervisor.api.app import create_app
from supervisor.api.server import CannotListen, PortInUse, check_bind, serve
from supervisor.api.view import ReplicaView

__all__ = ["CannotListen", "PortInUse", "ReplicaView", "check_bind", "create_app", "serve"]
