"""Every lease contract there is. A new one joins the list and passes the suite."""

from collections.abc import Sequence

from tests.conformance.contracts.capture import CAPTURE
from tests.conformance.contracts.contract import Contract
from tests.conformance.contracts.dedup import DEDUP
from tests.conformance.contracts.example import EXAMPLE
from tests.conformance.contracts.media import MEDIA
from tests.conformance.contracts.scm import SCM

__all__ = ["CONTRACTS", "Contract"]

CONTRACTS: Sequence[Contract] = (*EXAMPLE, *DEDUP, *SCM[:1], *MEDIA, *CAPTURE)
"""Of the four sources that share a table one is enough: they differ in a word."""
