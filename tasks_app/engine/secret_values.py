"""Secrets that steps may ask for by name: from the environment, by an allowed list, never stored.

What was given out in this process is blotted out of journal lines and diagnostics.
"""

import os

from tasks_app import conf
from tasks_app.domain.errors import ConfigurationError

_MIN_SCRUBBED = 4
_given: set[str] = set()


class SecretUnavailableError(ConfigurationError):
    """A step asked for a secret that the installation does not allow or does not have."""

    code = "secret_unavailable"


def get_secret(name: str) -> str:
    """Return a secret from the environment.

    Raises: SecretUnavailableError when the installation does not allow or does not have it.
    """
    value = os.environ.get(name, "") if name in conf.runtime().step_secrets else ""
    if not value:
        raise SecretUnavailableError(f"The secret {name} is not available to steps.", secret=name)
    if len(value) >= _MIN_SCRUBBED:
        _given.add(value)
    return value


def scrub(text: str) -> str:
    """Return the text without any secret that this process has given out."""
    for value in _given:
        text = text.replace(value, "[secret]")
    return text


def shown_part(text: str) -> str:
    """Return what of a text that goes on may be shown: no secret, and no beginning of one."""
    longest = max(map(len, _given), default=1)
    scrubbed = scrub(text)
    return scrubbed[: max(0, len(scrubbed) - longest + 1)]
