"""The loader: what ships is well formed, and what is malformed is refused with the file's name."""

import ast
import re
import zipfile
from pathlib import Path

import pytest

import schemas
from schemas import BadSchemaFile, Source, parse_queries

ROOT = Path(schemas.__file__).parent.parent
STATEMENT = re.compile(
    r"\s*(SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s*\(|"
    r"(CREATE|ALTER|DROP)\s+(TABLE|ROLE|FUNCTION|SCHEMA|DATABASE)\s|(GRANT|REVOKE)\s.+\s(TO|FROM)\s|SET\s+LOCAL\s)",
    re.DOTALL,
)


def write(root: Path, files: dict[str, str]) -> Source:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Source(root)


def test_what_ships_is_well_formed() -> None:
    assert schemas.migrations()[0].number == 1
    assert schemas.schema_version() == len(schemas.migrations())
    assert schemas.functions()
    assert "plan_roles" in schemas.bootstrap()
    for name, query in {**schemas.queries(), **schemas.bootstrap()}.items():
        assert query.name == name
        assert query.why
        assert not query.sql.endswith(";")


def test_a_query_has_a_name_a_reason_and_a_statement() -> None:
    text = "-- About this file.\n\n-- name: read_run\n-- one run by id\nSELECT 1\n  FROM t;\n"
    query, other = parse_queries(text + "\n-- name: list_runs\n-- all of them\nSELECT 2;\n", "run.sql")
    assert (query.name, query.why, query.sql) == ("read_run", "one run by id", "SELECT 1\n  FROM t")
    assert other.name == "list_runs"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;\n-- name: read_run\n-- why\nSELECT 1;", "before the first"),
        ("-- name: readRun\n-- why\nSELECT 1;", "verb_noun"),
        ("-- name: read\n-- why\nSELECT 1;", "verb_noun"),
        ("-- name:\n-- why\nSELECT 1;", "verb_noun"),
        ("-- name: read_run extra\n-- why\nSELECT 1;", "verb_noun"),
        ("-- name: read_run\nSELECT 1;", "says why"),
        ("-- name: read_run\n--\nSELECT 1;", "says why"),
        ("-- name: read_run\n-- why\n", "no statement"),
        ("-- name: read_run\n-- why\n-- another comment\n", "no statement"),
        ("--name: read_run\n-- why\nSELECT 1;", "before the first"),
        ("-- Name: read_run\n-- why\nSELECT 1;", "before the first"),
    ],
)
def test_a_malformed_query_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadSchemaFile, match=complaint) as caught:
        list(parse_queries(text, "run.sql"))
    assert "run.sql" in str(caught.value)


def test_a_name_is_given_once_over_all_files(tmp_path: Path) -> None:
    query = "-- name: read_run\n-- why\nSELECT 1;\n"
    with pytest.raises(BadSchemaFile, match=r"b\.sql: the name read_run is taken"):
        write(tmp_path, {"queries/a.sql": query, "queries/b.sql": query}).queries()


@pytest.mark.parametrize("names", [["0001_a", "0003_b"], ["0002_a"], ["0001_a", "0001_b"]])
def test_migrations_are_numbered_without_gap_or_twin(tmp_path: Path, names: list[str]) -> None:
    source = write(tmp_path, {f"migrations/{name}.sql": "SELECT 1;" for name in names})
    with pytest.raises(BadSchemaFile, match="numbered"):
        source.migrations()


@pytest.mark.parametrize("name", ["1_a", "0001-a", "0001_A", "0001_", "first"])
def test_a_migration_with_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSchemaFile, match="NNNN_what"):
        write(tmp_path, {f"migrations/{name}.sql": "SELECT 1;"}).migrations()


def test_the_functions_hash_sees_a_change_an_addition_and_a_moved_border(tmp_path: Path) -> None:
    def digest(name: str, *texts: str) -> str:
        (tmp_path / name).mkdir()
        files = {f"functions/{number}.sql": text for number, text in enumerate(texts)}
        return write(tmp_path / name, files).functions_sha256()

    digests = [digest("a", "x", "y"), digest("b", "x", "z"), digest("c", "xy"), digest("d", "x", "y", "")]
    assert len(set(digests)) == 4
    assert digest("e", "x", "y") == digests[0]


def test_line_ends_do_not_change_a_migration(tmp_path: Path) -> None:
    for name, text in {"unix": b"SELECT 1;\nSELECT 2;\n", "dos": b"SELECT 1;\r\nSELECT 2;\r\n"}.items():
        (tmp_path / name / "migrations").mkdir(parents=True)
        (tmp_path / name / "migrations/0001_a.sql").write_bytes(text)
    unix, dos = (Source(tmp_path / name).migrations() for name in ("unix", "dos"))
    assert unix == dos


def test_the_loader_reads_from_an_archive(tmp_path: Path) -> None:
    """A wheel may be imported without being unpacked."""
    archive = tmp_path / "tenure.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for path in (ROOT / "schemas").rglob("*.sql"):
            wheel.write(path, path.relative_to(ROOT))
    packed = Source(zipfile.Path(archive, "schemas/"))
    assert packed.migrations() == schemas.migrations()
    assert packed.functions_sha256() == schemas.SHIPPED.functions_sha256()
    assert packed.queries() == schemas.queries()


def test_no_sql_in_python() -> None:
    """Statements have a name and a file, where they can be read, prepared and explained."""
    found = []
    for package in ("supervisor", "actors", "schemas"):
        for path in (ROOT / package).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            texts = (n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
            found += [f"{path.relative_to(ROOT)}:{n.lineno}" for n in texts if STATEMENT.match(str(n.value))]
    assert found == []
