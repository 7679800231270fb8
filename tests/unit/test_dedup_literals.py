import pytest

from actors.dedup.literals import bigints


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "{}"),
        ([7], "{7}"),
        ([1, None, -(1 << 63)], "{1, NULL, -9223372036854775808}"),
        ((2, 3), "{2, 3}"),
    ],
)
def test_numbers_are_written_as_an_array(numbers: list[int | None], text: str) -> None:
    assert bigints(numbers) == text
