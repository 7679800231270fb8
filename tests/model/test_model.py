"""The part of the model that takes seconds: the rules in force hold, and one taken out is missed."""

import pytest

from tests.model.cases import CASES, Case
from tests.model.search import missing_programs, search

# a few of `--quick`: together they take less than 40 s of processor time, most of it the compiler's
NAMES = (
    "calm-small",
    "r3-no-fence",
    "r4-deaf-leader-renews",
    "r5-token-is-current-epoch",
    "r7-stop-from-receipt",
    "r9-worker-alone-records",
    "r10-no-quiesce",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_model_answers_as_expected(name: str) -> None:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    result = search(_case(name))
    assert result.as_expected, f"{result.verdict}\n{result.trail or result.said}"


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
