"""The array types that our calls are made of, told to the driver instead of asked for.

On every new connection the driver asks the server what such a type is: up to six turns, before the first call
that has an array is even prepared. The numbers of PostgreSQL's own types are the same on every server.
"""

from contextlib import suppress
from typing import Any, Final

# by name: the number of the type, and that of its array
_NUMBERS: Final = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "int4": (23, 1007),
    "int8": (20, 1016),
    "float8": (701, 1022),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
    "jsonb": (3802, 3807),
}
_TYPES: Final = [
    {
        "oid": array,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "elemtype": element,
        "elemdelim": ",",
        "basetype": None,
        "range_subtype": None,
        "attrtypoids": None,
    }
    for name, (element, array) in _NUMBERS.items()
]


def tell_arrays(connection: Any) -> None:
    """A driver without this door (it is not part of its surface) asks, as ever."""
    with suppress(AttributeError):
        connection._protocol.get_settings().register_data_types(_TYPES)  # noqa: SLF001
