"""Which URL for whom. Separate login roles are the rule; one URL for all works, and `tenure doctor` warns."""

from dataclasses import dataclass

from supervisor.config import Settings
from supervisor.embedded import read_urls
from supervisor.errors import DatabaseUnreachable


@dataclass(frozen=True, slots=True)
class RuntimeUrls:
    control: str
    worker: str
    listen: str
    maintenance: str


def runtime_urls(settings: Settings) -> RuntimeUrls:
    """From the settings, else those of the embedded database if one is running."""
    if settings.database_url is None:
        embedded = read_urls(settings.state_dir)
        if embedded is None:
            raise DatabaseUnreachable(
                what="TENURE_DATABASE_URL is not set and no embedded database is running"
            )
        return RuntimeUrls(embedded.control, embedded.worker, embedded.control, embedded.maintenance)
    control = settings.database_url.get_secret_value()
    worker = settings.worker_database_url or settings.database_url
    listen = settings.listen_database_url or settings.database_url
    maintenance = settings.maintenance_database_url or worker
    return RuntimeUrls(
        control, worker.get_secret_value(), listen.get_secret_value(), maintenance.get_secret_value()
    )
