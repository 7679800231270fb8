"""Why pictures did not become a schedule, in words for the person who sent them."""

from typing import ClassVar

from supervisor.errors import TenureError


class Unreadable(TenureError):
    """{reason}"""

    hint: ClassVar[str] = "send pictures of the whole schedule in which the times can be read"

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(code=code, reason=reason)


class LanguageMissing(Unreadable):
    """{reason}"""

    hint: ClassVar[str] = (
        "install the package on every replica that reads schedules, or ask for another language"
    )
