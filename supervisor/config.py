"""Settings: read once, frozen, refused when their relations are wrong.

From the environment (prefix TENURE_) and from `tenure.toml` in the working directory; the environment wins.
The database is that of TENURE_DATABASE_URL, else that of `[db]`, by its parts (`project_settings`).
"""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from supervisor.errors import BadSettings
from supervisor.own_variables import HARMLESS_VARIABLES, is_own
from supervisor.project_settings import load_database_settings
from supervisor.proxies import TrustedProxies

CLOCK_RATE_ERROR = 1.02
TOML_FILE = "tenure.toml"
API_TOKEN_LENGTH = 16
LONGEST_STOP_BOUND = 3600.0
"""The database takes no longer one: after a failover its leader waits for the longest of all workers."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds of the protocol; letters as in the design: L R retry H C S k D."""

    leader_lease: float = 15
    renew_deadline: float = 9
    renew_retry: float = 2
    heartbeat: float = 3
    confirm_after: float = 9
    self_stop: float = 20
    kill: float = 2
    stop_bound: float = 30

    def complaints(self) -> list[str]:
        """The relations that do not hold; with any of them broken two executions could overlap."""
        stop = self.self_stop * CLOCK_RATE_ERROR + self.kill + 2 * self.heartbeat
        renew = self.renew_deadline * CLOCK_RATE_ERROR + 2
        rules = [
            (min(self._values()) > 0, "every timing must be greater than 0"),
            (
                self.leader_lease > renew,
                f"leader lease {self.leader_lease:g} must exceed renew deadline * 1.02 + 2 = {renew:g}",
            ),
            (
                self.renew_deadline > 1.2 * self.renew_retry,
                f"renew deadline {self.renew_deadline:g} must exceed 1.2 * renew retry {self.renew_retry:g}",
            ),
            (
                self.confirm_after >= 3 * self.heartbeat,
                f"confirm-after {self.confirm_after:g} must be at least 3 * heartbeat {self.heartbeat:g}",
            ),
            (
                self.self_stop > self.confirm_after,
                f"self-stop {self.self_stop:g} must exceed confirm-after {self.confirm_after:g}",
            ),
            (
                self.stop_bound >= stop,
                f"stop bound {self.stop_bound:g} must be at least {stop:g} (self-stop, kill, two heartbeats)",
            ),
            (
                self.stop_bound <= LONGEST_STOP_BOUND,
                f"stop bound {self.stop_bound:g} must be at most {LONGEST_STOP_BOUND:g}",
            ),
        ]
        return [complaint for holds, complaint in rules if not holds]

    def _values(self) -> tuple[float, ...]:
        return astuple(self)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="TENURE_", frozen=True, toml_file=TOML_FILE, extra="ignore", env_ignore_empty=True
    )

    database_url: SecretStr | None = None
    worker_database_url: SecretStr | None = None
    migrate_database_url: SecretStr | None = None
    listen_database_url: SecretStr | None = None
    maintenance_database_url: SecretStr | None = None
    pooler: Literal["none", "transaction"] = "none"
    redis_url: SecretStr | None = None
    lead: bool = True
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8080, ge=0, le=65535)
    trusted_proxies: str = ""
    domains: str = ""
    slots: int = Field(default=8, ge=1, le=1000)
    state_dir: Path = Path(".tenure")
    artifacts_dir: Path | None = None
    libraries_dir: Path | None = None
    thumbs_dir: Path | None = None
    api_token: SecretStr | None = None
    command_user: str | None = None
    command_env: str = ",".join(HARMLESS_VARIABLES)
    command_confined: bool = True
    drain_seconds: float = Field(default=20, ge=0)
    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    leader_lease_seconds: float = 15
    renew_deadline_seconds: float = 9
    renew_retry_seconds: float = 2
    heartbeat_seconds: float = 3
    confirm_after_seconds: float = 9
    self_stop_seconds: float = 20
    kill_seconds: float = 2
    stop_bound_seconds: float = 30

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def timings(self) -> Timings:
        return Timings(
            leader_lease=self.leader_lease_seconds,
            renew_deadline=self.renew_deadline_seconds,
            renew_retry=self.renew_retry_seconds,
            heartbeat=self.heartbeat_seconds,
            confirm_after=self.confirm_after_seconds,
            self_stop=self.self_stop_seconds,
            kill=self.kill_seconds,
            stop_bound=self.stop_bound_seconds,
        )

    @property
    def command_variables(self) -> tuple[str, ...]:
        """What commands may take over from the environment of this replica."""
        return _names(self.command_env)

    @property
    def proxies(self) -> TrustedProxies:
        return TrustedProxies.parse(self.trusted_proxies)

    @property
    def domain_names(self) -> tuple[str, ...]:
        """The domains this replica works for; empty means all there are."""
        return _names(self.domains)


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def load_settings(*, project_key: str | None = None, **overrides: Any) -> Settings:
    """Read the settings, or raise BadSettings naming every fault (never a value: it may be a secret).

    A project key given here is meant in place of db.project_key.
    """
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        faults = "; ".join(
            f"TENURE_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in error.errors()
        )
        raise BadSettings(what=faults) from None
    if complaints := [
        *settings.timings.complaints(),
        *_token_complaints(settings),
        *_variable_complaints(settings),
        *_proxy_complaints(settings),
    ]:
        raise BadSettings(what="; ".join(complaints))
    settings = settings.model_copy(update=_urls(settings, project_key))
    return settings.model_copy(update=_places(settings))


def _token_complaints(settings: Settings) -> list[str]:
    """It is compared, not hashed: its length is all that is between it and whoever guesses."""
    token = settings.api_token
    if token is None or len(token.get_secret_value().strip()) >= API_TOKEN_LENGTH:
        return []
    short = f"TENURE_API_TOKEN has fewer than {API_TOKEN_LENGTH} characters and can be guessed"
    return [f"{short}: make one with `openssl rand -hex 32`"]


def _variable_complaints(settings: Settings) -> list[str]:
    own = [name for name in settings.command_variables if is_own(name)]
    if not own:
        return []
    advice = "variables of that kind hold secrets of the replica; give commands one with another name"
    return [f"TENURE_COMMAND_ENV names {', '.join(own)}: {advice}"]


def _proxy_complaints(settings: Settings) -> list[str]:
    try:
        TrustedProxies.parse(settings.trusted_proxies)
    except ValueError as error:
        return [f"TENURE_TRUSTED_PROXIES: {error}"]
    return []


def _urls(settings: Settings, project_key: str | None) -> dict[str, SecretStr]:
    """From `[db]`, where no URL says where the database is."""
    if settings.database_url is not None:
        return {}
    parts = load_database_settings()
    if not parts.in_use:
        return {}
    place = parts.place(project_key)
    return {
        "database_url": SecretStr(place.dsn),
        "migrate_database_url": settings.migrate_database_url or SecretStr(place.admin_dsn),
    }


def _places(settings: Settings) -> dict[str, Path | None]:
    """Directories by their whole names. With the embedded database, everything has a place beside it."""
    state = Path.cwd() / settings.state_dir
    libraries = settings.libraries_dir
    if libraries is None and settings.database_url is None and settings.lead:
        libraries = state / "libraries"
    return {
        "state_dir": state,
        "thumbs_dir": state / (settings.thumbs_dir or "thumbs"),
        "libraries_dir": libraries and Path.cwd() / libraries,
    }
