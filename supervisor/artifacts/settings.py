"""Where artifacts are kept: read once, frozen, from the environment and from `[artifacts]` of tenure.toml.

The names of the environment are TENURE_ARTIFACTS_... for all, and ENGRAM_ARTIFACTS_... and ENGRAM_S3_... as
they were known before; where both are set, TENURE_ is meant. Keys of the S3 account come from the
environment alone: in the file they are refused, whatever the backend. A store is reached over https; plain
http only on this host's loopback, and only with ENGRAM_TESTING=1.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from supervisor.artifacts import MAX_FILE_SIZE
from supervisor.errors import BadSettings

Backend = Literal["local", "file", "object"]
Names = Annotated[tuple[str, ...] | None, NoDecode]
SECRETS: Final = ("access_key", "secret_key", "session_token")
PROJECT_KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")


def _names(name: str, *others: str) -> Any:
    return AliasChoices(f"TENURE_ARTIFACTS_{name}".upper(), *others)


class ArtifactSettings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        toml_file="tenure.toml",
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        env_prefix="TENURE_ARTIFACTS_",
    )

    backend: Backend = Field("local", validation_alias=_names("backend", "ENGRAM_ARTIFACTS_BACKEND"))
    root: Path | None = Field(
        None, validation_alias=_names("root", "TENURE_ARTIFACTS_DIR", "ENGRAM_ARTIFACTS_ROOT")
    )
    uri: str | None = Field(None, validation_alias=_names("uri", "ENGRAM_ARTIFACTS_URI"))
    allowed_prefixes: Names = Field(
        None, validation_alias=_names("allowed_prefixes", "ENGRAM_ARTIFACTS_ALLOWED_PREFIXES")
    )
    max_file_size: int = Field(
        MAX_FILE_SIZE, ge=1, validation_alias=_names("max_file_size", "ENGRAM_ARTIFACTS_MAX_FILE_SIZE")
    )
    quota_bytes: int | None = Field(None, ge=0, validation_alias=_names("quota_bytes"))
    former_places: Names = Field(None, validation_alias=_names("former_places"))
    project_key: str | None = Field(None, validation_alias=AliasChoices("TENURE_PROJECT_KEY", "PROJECT_KEY"))

    endpoint: str | None = Field(None, validation_alias=_names("s3_endpoint", "ENGRAM_S3_ENDPOINT"))
    bucket: str | None = Field(None, validation_alias=_names("s3_bucket", "ENGRAM_S3_BUCKET"))
    region: str = Field("us-east-1", validation_alias=_names("s3_region", "ENGRAM_S3_REGION"))
    prefix: str = Field("", validation_alias=_names("s3_prefix", "ENGRAM_S3_PREFIX"))
    access_key: SecretStr | None = Field(
        None, validation_alias=_names("s3_access_key", "ENGRAM_S3_ACCESS_KEY")
    )
    secret_key: SecretStr | None = Field(
        None, validation_alias=_names("s3_secret_key", "ENGRAM_S3_SECRET_KEY")
    )
    session_token: SecretStr | None = Field(
        None, validation_alias=_names("s3_session_token", "ENGRAM_S3_SESSION_TOKEN")
    )
    addressing: Literal["path", "virtual"] = Field("path", validation_alias=_names("s3_addressing"))
    bucket_owner: str | None = Field(None, validation_alias=_names("s3_bucket_owner"))
    encryption: Literal["AES256", "aws:kms"] | None = Field(None, validation_alias=_names("s3_encryption"))
    kms_key_id: str | None = Field(None, validation_alias=_names("s3_kms_key_id"))
    ca_file: Path | None = Field(None, validation_alias=_names("s3_ca_file"))
    testing: bool = Field(False, validation_alias=AliasChoices("ENGRAM_TESTING"))

    REQUIRED: ClassVar = {
        "endpoint": "ENGRAM_S3_ENDPOINT",
        "bucket": "ENGRAM_S3_BUCKET",
        "access_key": "ENGRAM_S3_ACCESS_KEY",
        "secret_key": "ENGRAM_S3_SECRET_KEY",
    }

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

    @field_validator("allowed_prefixes", "former_places", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @property
    def base(self) -> str:
        """What stands before a key in the bucket: `<prefix><project_key>/`."""
        return f"{self.prefix}{self.project_key or ''}".strip("/")

    def complaints(self, backend: Backend) -> list[str]:
        """What keeps this backend from being used; never a value of a secret."""
        found = []
        if self.project_key is not None and not PROJECT_KEY.fullmatch(self.project_key):
            found.append("the project key is lower-case letters, digits and _, beginning with a letter")
        if backend == "file" and self.uri is None:
            found.append("the backend file needs TENURE_ARTIFACTS_URI, such as file:///mnt/nfs/artifacts")
        if backend == "object":
            found += [
                f"the backend object needs {name}"
                for field, name in self.REQUIRED.items()
                if not getattr(self, field)
            ]
            if self.bucket and not BUCKET.fullmatch(self.bucket):
                found.append("ENGRAM_S3_BUCKET is no name of a bucket")
            if self.endpoint:
                found += endpoint_complaints(self.endpoint, testing=self.testing)
        return found


class _Table(TomlConfigSettingsSource):
    """The table `[artifacts]` of the file."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        table = self.toml_data.get("artifacts", {})
        if not isinstance(table, dict):
            raise BadSettings(what="`artifacts` in tenure.toml is no table")
        if secrets := [name for name in _flat(table) if name.lower().removeprefix("s3_") in SECRETS]:
            raise BadSettings(
                what=f"tenure.toml has {', '.join(secrets)}: credentials come from the environment only"
            )
        self.toml_data = {name.removeprefix("s3_"): value for name, value in table.items()}
        self.init_kwargs = self.toml_data


def _flat(table: dict[str, Any]) -> list[str]:
    names = list(table)
    for value in table.values():
        if isinstance(value, dict):
            names += _flat(value)
    return names


def endpoint_complaints(endpoint: str, *, testing: bool) -> list[str]:
    url = urlsplit(endpoint)
    if "@" in url.netloc:
        return ["ENGRAM_S3_ENDPOINT holds credentials; they have variables of their own"]
    if not url.hostname or url.query or url.fragment or url.scheme not in ("http", "https"):
        return ["ENGRAM_S3_ENDPOINT is an address such as https://minio.example.com"]
    if url.scheme == "http" and not (testing and _is_loopback(url.hostname)):
        return ["ENGRAM_S3_ENDPOINT must begin with https:// (http only on loopback, with ENGRAM_TESTING=1)"]
    return []


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load_artifact_settings(**overrides: Any) -> ArtifactSettings:
    """Read the settings, or raise BadSettings naming every fault (never a value: it may be a secret)."""
    try:
        return ArtifactSettings(**overrides)
    except ValidationError as error:
        faults = "; ".join(f"{'_'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise BadSettings(what=faults) from None
