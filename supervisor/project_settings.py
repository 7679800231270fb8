"""A project's database by its parts: `[db]` of tenure.toml, or TENURE_DB_... in the environment, which wins.

All keys are required together: the database is created by one login and worked in by another. The names
PROJECT_KEY, POSTGRES_DB and ENGRAM_TESTING come from the environment of other programs beside this one.
"""

from typing import Final

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from supervisor.errors import BadSettings
from supervisor.project import ProjectDatabase, choose_database, is_host

REQUIRED: Final = ("project_key", "host", "port", "user", "password", "admin_user", "admin_password")


class DatabaseSettings(BaseSettings):
    """The keys of `[db]`; in the environment the words of others are known too."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_DB_",
        frozen=True,
        toml_file="tenure.toml",
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
    )

    project_key: str | None = Field(
        None, validation_alias=AliasChoices("TENURE_DB_PROJECT_KEY", "TENURE_PROJECT_KEY", "PROJECT_KEY")
    )
    host: str | None = None
    port: int | None = Field(None, ge=1, le=65535)
    user: str | None = None
    password: SecretStr | None = None
    admin_user: str | None = None
    admin_password: SecretStr | None = None
    single_project: bool = False
    postgres_db: str | None = Field(None, validation_alias=AliasChoices("POSTGRES_DB"))
    testing: bool = Field(False, validation_alias=AliasChoices("ENGRAM_TESTING"))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _Table(settings_cls)

    @property
    def in_use(self) -> bool:
        """A project key alone says nothing of a server: artifacts have one too."""
        return any(getattr(self, name) is not None for name in REQUIRED if name != "project_key")

    def place(self, project_key: str | None = None) -> ProjectDatabase:
        """All parts together; raises BadSettings that names every key that is missing."""
        given = self if project_key is None else self.model_copy(update={"project_key": project_key})
        values = {name: getattr(given, name) for name in REQUIRED}
        if missing := [name for name, value in values.items() if not value]:
            names = ", ".join(f"db.{name} (TENURE_DB_{name.upper()})" for name in missing)
            raise BadSettings(what=f"missing {names}; or give the whole address as TENURE_DATABASE_URL")
        if not is_host(values["host"]):
            raise BadSettings(what="db.host is not the name or the address of one host")
        database = choose_database(
            values.pop("project_key"),
            self.postgres_db,
            single_project=self.single_project and project_key is None,
            testing=self.testing,
        )
        for name in ("password", "admin_password"):
            values[name] = values[name].get_secret_value()
        return ProjectDatabase(database=database, **values)


class _Table(TomlConfigSettingsSource):
    """The table `[db]` of the file; an unknown name is refused, because a misspelt key is none."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        table = self.toml_data.get("db", {})
        if not isinstance(table, dict):
            raise BadSettings(what="`db` in tenure.toml is no table")
        if unknown := sorted(set(table) - {*REQUIRED, "single_project"}):
            raise BadSettings(
                what=f"tenure.toml has {', '.join(f'db.{name}' for name in unknown)}: not known"
            )
        self.toml_data = table
        self.init_kwargs = table


def load_database_settings() -> DatabaseSettings:
    try:
        return DatabaseSettings()
    except ValidationError as error:
        faults = "; ".join(f"{_named(str(fault['loc'][0]))}: {fault['msg']}" for fault in error.errors())
        raise BadSettings(what=faults) from None


def _named(place: str) -> str:
    """A key as it stands in the file, or a variable that has no key."""
    key = place.lower().removeprefix("tenure_db_")
    return f"db.{key}" if key in {*REQUIRED, "single_project"} else place
