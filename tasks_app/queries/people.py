"""A user as others see one."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Person:
    """A user: `name` for sentences, `username` for where it must be unique."""

    id: int
    name: str
    username: str


def person(user: Any) -> Person:
    """Return a user as others see one."""
    username = user.get_username()
    return Person(user.pk, user.get_full_name() or username, username)
