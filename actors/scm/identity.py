"""People from the files of a checkout: `.agentx/users/<user_id>.yaml` and `.agentx/roles/<user_id>/*`.

    # .agentx/users/alice.yaml
    display_name: Alice Example
    aliases: [al]
    is_active: true
    accounts:            # the whole list: what is not named is no longer hers
      svn: alice
      git: [alice, "Alice Example"]
      gitlab: alice
      email: [alice@example.org]
    roles: [maintainer]  # labels, for those of her roles whose file names none
    meta: {team: core}

A role is a file of any text: its name without the ending is the role, its content the profile. It may begin
with `---` lines that hold `labels: [...]`.

The tables are the authority and the files are read into them, never the other way about. All files are read
and judged before the first row is written, so a wrong one changes nothing. Files come from whoever may
commit: only plain YAML is read (no objects, no aliases), links are not followed, sizes and numbers are
bounded, unknown fields are refused with the file named.

`~/.agentx/user.config.yaml` is a person's own and for a time: it is shown beside the rows and never written.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from supervisor.errors import BadInput
from supervisor.store import Store

__all__ = ["BadIdentityFile", "Files", "Person", "Role", "load", "personal_override", "read_directory"]

FOLDER: Final = ".agentx"
OVERRIDE: Final = Path(FOLDER) / "user.config.yaml"
USER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
MAX_USER_BYTES: Final = 64 * 1024
MAX_ROLE_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 10_000
MAX_DEPTH: Final = 16
MAX_ROLE_NAME: Final = 200
ENDINGS: Final = (".yaml", ".yml")
MARK: Final = "---"
Names = list[str]


class BadIdentityFile(BadInput):
    """{file}: {what}"""

    hint = "nothing was changed; correct the file and load again"


class Accounts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    svn: Names = Field(default=[], max_length=200)
    git: Names = Field(default=[], max_length=200)
    gitlab: Names = Field(default=[], max_length=200)
    email: Names = Field(default=[], max_length=200)

    @field_validator("*", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("*")
    @classmethod
    def _names(cls, value: Names) -> Names:
        return _checked_names(value)


class Spec(BaseModel):
    """What a person's file may say; what it does not say stays as it is in the table."""

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")

    user_id: str | None = None
    display_name: str = Field(default="", max_length=200)
    aliases: Names = Field(default=[], max_length=200)
    is_active: bool = True
    accounts: Accounts = Accounts()
    roles: Names = Field(default=[], max_length=100)
    meta: dict[str, Any] = {}

    @field_validator("aliases", "roles")
    @classmethod
    def _names(cls, value: Names) -> Names:
        return _checked_names(value)


class RoleHead(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    labels: Names = Field(default=[], max_length=100)

    @field_validator("labels")
    @classmethod
    def _names(cls, value: Names) -> Names:
        return _checked_names(value)


@dataclass(frozen=True, slots=True)
class Person:
    user_id: str
    spec: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True)
class Role:
    user_id: str
    role: str
    labels: tuple[str, ...]
    profile: str
    source: str


@dataclass(slots=True)
class Files:
    people: list[Person] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)


def read_directory(directory: Path) -> Files:
    """Everything below `.agentx` of a checkout, judged; or BadIdentityFile."""
    home = directory / FOLDER
    if not home.is_dir() or home.is_symlink():
        raise BadIdentityFile(file=str(home), what="there is no such directory")
    found = Files()
    labels: dict[str, tuple[str, ...]] = {}
    for path in _files(home / "users"):
        if path.suffix not in ENDINGS:
            raise BadIdentityFile(file=str(path), what="a person's file is <user_id>.yaml")
        person, named = _person(path, directory)
        if person.user_id in labels:
            raise BadIdentityFile(file=str(path), what=f"there are two files of {person.user_id}")
        found.people.append(person)
        labels[person.user_id] = named
    for folder in _folders(home / "roles"):
        if folder.name not in labels:
            raise BadIdentityFile(file=str(folder), what=f"there is no users/{folder.name}.yaml for it")
        roles = [_role(path, folder.name, labels[folder.name], directory) for path in _files(folder)]
        if len({role.role for role in roles}) < len(roles):
            raise BadIdentityFile(file=str(folder), what="two files are of one role")
        found.roles += roles
    if len(found.people) + len(found.roles) > MAX_FILES:
        raise BadIdentityFile(file=str(home), what=f"there are more than {MAX_FILES} files")
    return found


async def load(store: Store, actor: str, files: Files) -> None:
    """Write them down, person by person; done again, it changes nothing."""
    for person in files.people:
        await store.row("save_user", actor, person.user_id, json.dumps(person.spec))
    for role in files.roles:
        await store.row(
            "save_role_profile", actor, role.user_id, role.role, list(role.labels), role.profile, role.source
        )


def personal_override(home: Path) -> dict[str, Any] | None:
    """What the person at this machine says for the time being; None where there is no such file."""
    path = home / OVERRIDE
    if not path.exists():
        return None
    return _table(_parsed(_text(path, MAX_USER_BYTES), path), path)


def _person(path: Path, root: Path) -> tuple[Person, tuple[str, ...]]:
    user = path.stem
    if USER_ID.fullmatch(user) is None:
        raise BadIdentityFile(file=str(path), what=f"{user!r} cannot be the id of a person")
    given = _table(_parsed(_text(path, MAX_USER_BYTES), path), path)
    spec = _judged(Spec, given, path)
    if spec.user_id not in (None, user):
        raise BadIdentityFile(file=str(path), what=f"it says that it is of {spec.user_id!r}")
    try:
        said = spec.model_dump(mode="json", exclude_unset=True, exclude={"user_id", "roles"})
    except ValueError:
        raise BadIdentityFile(file=str(path), what="meta holds a value that is no JSON") from None
    _storable(said, path)
    return Person(user, said, str(path.relative_to(root))), tuple(spec.roles)


def _role(path: Path, user: str, labels: tuple[str, ...], root: Path) -> Role:
    if not 1 <= len(path.stem) <= MAX_ROLE_NAME or not path.stem.isprintable():
        raise BadIdentityFile(file=str(path), what="its name cannot be that of a role")
    text = _text(path, MAX_ROLE_BYTES)
    _storable(text, path)
    head, begins, rest = text.partition(f"{MARK}\n")
    if not head and begins and f"\n{MARK}\n" in f"\n{rest}\n":
        said = _parsed(f"\n{rest}\n".partition(f"\n{MARK}\n")[0], path)
        own = _judged(RoleHead, {} if said is None else _table(said, path), path)
        labels = tuple(own.labels) if own.model_fields_set else labels
    return Role(user, path.stem, labels, text, str(path.relative_to(root)))


def _text(path: Path, limit: int) -> str:
    """Of a file, not of what a link leads to, and not of a pipe."""
    try:
        with os.fdopen(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadIdentityFile(file=str(path), what="it is no plain file")
            content = file.read(limit + 1)
    except OSError as error:
        raise BadIdentityFile(file=str(path), what=error.strerror or "it cannot be read") from None
    if len(content) > limit:
        raise BadIdentityFile(file=str(path), what=f"it has more than {limit} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadIdentityFile(file=str(path), what="it is no UTF-8 text") from None


def _parsed(text: str, path: Path) -> Any:
    import yaml  # noqa: PLC0415  for those who load files

    depth = 0
    try:
        # looked through first, and only as far as it is harmless: depth costs the parser its square, and a
        # few lines of aliases can stand for more than memory holds
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise BadIdentityFile(file=str(path), what="aliases (*name) are not read")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise BadIdentityFile(file=str(path), what="it is nested too deeply")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise BadIdentityFile(file=str(path), what=f"it is no plain YAML{where}") from None


def _table(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadIdentityFile(file=str(path), what="it is no table of names and values")
    return value


def _judged(model: type[Any], given: Mapping[str, Any], path: Path) -> Any:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        raise BadIdentityFile(file=str(path), what=faults) from None
    except (RecursionError, ValueError):
        raise BadIdentityFile(file=str(path), what="it cannot be understood") from None


def _storable(value: Any, path: Path) -> None:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        if any("\0" in text for text in _texts(value)):
            raise BadIdentityFile(file=str(path), what="it holds a NUL")
    except (TypeError, ValueError, RecursionError):
        raise BadIdentityFile(file=str(path), what="it holds a value that is no JSON") from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _checked_names(names: Names) -> Names:
    for name in names:
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise ValueError("a name has 1 to 200 printable characters")
    return names


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in _within(folder) if not path.is_dir() or path.is_symlink())


def _folders(folder: Path) -> Iterator[Path]:
    for path in _within(folder):
        if path.is_symlink() or not path.is_dir():
            raise BadIdentityFile(file=str(path), what="only directories of persons are here")
        yield path


def _within(folder: Path) -> list[Path]:
    """In one order on every machine. What begins with a dot is the editor's and git's."""
    if folder.is_symlink():
        raise BadIdentityFile(file=str(folder), what="it is a link")
    if not folder.is_dir():
        return []
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                found.append(Path(entry.path))
            if len(found) > MAX_FILES:
                raise BadIdentityFile(file=str(folder), what=f"there are more than {MAX_FILES} files")
    return sorted(found)
