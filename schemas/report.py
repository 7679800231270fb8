"""What a migration answers: a report, the standing of a schema, or one of these errors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from supervisor.errors import TenureError


class NeedsAdministrator(TenureError):
    """{user} may not do all of this; an administrator runs it once, connected to {database}:\n\n{sql}"""

    hint = "run the SQL above as a superuser, then `tenure migrate` again"


class SchemaTooNew(TenureError):
    """the database has schema {current}, this code knows {expected}"""

    hint = "a newer version migrated this database: install that version here; schemas only go forward"


class SchemaTooOld(TenureError):
    """the database has schema {current}, this code needs {expected}"""

    hint = "run `tenure migrate` with the URL of a role that may (TENURE_MIGRATE_DATABASE_URL)"


class PackageTooNew(TenureError):
    """the database has migration {current} of {namespace}, the installed package knows {expected}"""

    hint = "a newer version of the package migrated this database: install that version here"


class PackageTooOld(TenureError):
    """the database has migration {current} of {namespace}, the installed package needs {expected}"""

    hint = "run `tenure migrate` with the package installed and the URL of a role that may"


class MigrationChanged(TenureError):
    """migration {number} ({name}) of {namespace} is not the one that was applied to this database"""

    hint = "restore the file as it was released; a change of the schema is a new migration"


class MigrateFailed(TenureError):
    """{step} failed: {what}"""

    hint = "nothing of this step was kept; correct the cause and run `tenure migrate` again"


class SchemaBusy(TenureError):
    """{step} did not get its locks within {seconds} s: {what}"""

    hint = "look for long transactions in pg_stat_activity, then run `tenure migrate` again"


@dataclass(frozen=True)
class MigrateReport:
    """What one run changed; `prepared` names roles, rights and tables in words."""

    database: str
    version: int
    prepared: tuple[str, ...] = ()
    applied: tuple[int, ...] = ()
    functions_replaced: bool = False
    task_types_declared: bool = False
    packages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        replaced = self.functions_replaced or self.task_types_declared
        return replaced or bool(self.prepared or self.applied or any(self.packages.values()))


@dataclass(frozen=True)
class PackageState:
    """How far the migrations of an installed package have come; 0 where none was applied."""

    namespace: str
    current: int
    expected: int


@dataclass(frozen=True)
class SchemaState:
    """How the schema of a database stands to this code; 0 where there is none."""

    current: int
    expected: int
    functions_equal: bool
    packages: tuple[PackageState, ...] = ()

    @property
    def standing(self) -> Literal["old", "equal", "new"]:
        if self.current == self.expected:
            return "equal"
        return "old" if self.current < self.expected else "new"

    def refuse_old(self) -> None:
        """A newer schema is no reason to stop: the previous version works on while the next is rolled out."""
        for package in self.packages:
            if package.current < package.expected and self.standing != "old":
                raise PackageTooOld(**asdict(package))
        if self.standing == "old":
            raise SchemaTooOld(current=self.current, expected=self.expected)
