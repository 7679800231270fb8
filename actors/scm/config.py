"""How repositories are synced: `[scm.sync]` and `[bulk]` of tenure.toml, and what a task changes for itself.

A value outside its range is refused where it is read, with its name; an unknown name is refused too, because
a misspelt bound is none.
"""

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from actors.scm.backoff import RetryRules
from supervisor.errors import BadSettings

FILE: Final = Path("tenure.toml")
OVERLAPS: Final = {"svn": 10, "git": 50, "gitlab_mr": 20, "gitlab_review": 100}
"""How much may be read again, at most: revisions of svn, the most recent records of the others."""
MEBIBYTE: Final = 1 << 20


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Svn(Section):
    log_limit: int = Field(default=500, ge=1, le=10_000)


class Git(Section):
    fetch_stats: bool = True
    bulk_lines: int = Field(default=1000, ge=1, le=1_000_000)


class Gitlab(Section):
    per_page: int = Field(default=100, ge=1, le=100)
    rate_limit_rpm: int = Field(default=600, ge=1, le=100_000)


class Bulk(Section):
    diff_size_threshold: int = Field(default=MEBIBYTE, ge=1, le=50 * MEBIBYTE)
    """In bytes, like artifacts.max_file_size."""


class Sync(Section):
    parallelism: int = Field(default=4, ge=1, le=16)
    batch_size: int = Field(default=100, ge=10, le=1000)
    interval_seconds: int = Field(default=300, ge=0, le=86_400)
    retry_count: int = Field(default=3, ge=0, le=10)
    retry_interval: int = Field(default=5, ge=1, le=60)
    retry_backoff: Literal["exponential", "fixed", "linear"] = "exponential"
    retry_max_interval: int = Field(default=60, ge=1, le=86_400)
    retry_jitter: float = Field(default=0.1, ge=0, le=1, strict=False)
    default_overlap: int = Field(default=0, ge=0, le=100)
    mode: Literal["strict", "best_effort"] = "strict"
    lock_timeout: int = Field(default=300, ge=60, le=3600)
    run_history_days: int = Field(default=90, ge=7, le=365)
    max_lag_seconds: int = Field(default=3600, ge=300, le=86_400)
    bulk_threshold: int = Field(default=100, ge=50, le=500)
    diff_fetch_enabled: bool = True
    diff_size_limit_mb: int = Field(default=10, ge=1, le=50)
    # ours: where a repository may lie
    allow_private_addresses: bool = False
    allow_http: bool = False
    allow_local_files: bool = False
    svn: Svn = Svn()
    git: Git = Git()
    gitlab: Gitlab = Gitlab()
    bulk: Bulk = Bulk()

    @property
    def retry_rules(self) -> RetryRules:
        return RetryRules(
            self.retry_backoff, float(self.retry_interval), float(self.retry_max_interval), self.retry_jitter
        )

    @property
    def diff_limit_bytes(self) -> int:
        return self.diff_size_limit_mb * MEBIBYTE


@cache
def sync_config(file: Path | None = None) -> Sync:
    """What the file says, read once; the defaults where there is none."""
    try:
        text = (file or FILE).read_text()
    except FileNotFoundError:
        return Sync()
    except UnicodeDecodeError:
        raise BadSettings(what=f"{FILE.name} is not UTF-8") from None
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(what=f"{FILE.name}: {error}") from None
    section = _table(whole, "scm", "sync")
    if "bulk" not in whole:
        return of_section(section)
    if "bulk" in section:
        raise BadSettings(what=f"{FILE.name}: [bulk] and [scm.sync.bulk] are the same table: keep one")
    return of_section({**section, "bulk": _table(whole, "bulk")})


def _table(whole: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = whole
    for name in names:
        found = found.get(name, {})
        if not isinstance(found, Mapping):
            raise BadSettings(what=f"{FILE.name}: [{'.'.join(names)}] is no table")
    return found  # type: ignore[no-any-return]  # a table, as was just seen


def of_section(section: Mapping[str, Any]) -> Sync:
    try:
        return Sync.model_validate(dict(section))
    except ValidationError as error:
        raise BadSettings(what=_faults(error)) from None


def for_task(base: Sync, source: str, overrides: Mapping[str, Any]) -> tuple[Sync, int]:
    """The configuration of one task and its overlap; `auto` and `overlap` are the task's own words."""
    own = {name: value for name, value in overrides.items() if name not in {"overlap", "auto"}}
    try:
        config = Sync.model_validate(_merged(base.model_dump(), own))
    except ValidationError as error:
        raise BadSettings(what=f"the task's configuration: {_faults(error)}") from None
    overlap = overrides.get("overlap", min(config.default_overlap, OVERLAPS[source]))
    if not isinstance(overlap, int) or isinstance(overlap, bool) or not 0 <= overlap <= OVERLAPS[source]:
        raise BadSettings(
            what=f"overlap {json.dumps(overlap)} of {source} is not between 0 and {OVERLAPS[source]}"
        )
    return config, overlap


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for name, value in over.items():
        inner = both.get(name)
        both[name] = (
            _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
        )
    return both


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"scm.sync.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
    )
