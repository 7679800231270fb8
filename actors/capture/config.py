"""How pictures are read: TENURE_CAPTURE_LANGUAGES."""

from functools import cache
from typing import Annotated

from pydantic import StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from supervisor.errors import BadSettings


class CaptureConfig(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="TENURE_CAPTURE_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    languages: Annotated[str, StringConstraints(pattern=r"^[a-z_]{3,12}(\+[a-z_]{3,12}){0,4}$")] = "eng"
    """As tesseract names them, the likeliest first: eng, deu, eng+deu."""


@cache
def capture_config() -> CaptureConfig:
    try:
        return CaptureConfig()
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise BadSettings(what=f"TENURE_CAPTURE_LANGUAGES: {what}; write eng, deu or eng+deu") from None
