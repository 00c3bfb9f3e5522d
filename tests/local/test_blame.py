"""What a failed start is blamed on: somebody's code with its place, or the local data."""

import sys
from pathlib import Path

import pytest

from runtime_project.local import blame, state

HEAD = "Traceback (most recent call last):\n"
PACKAGE = f'  File "{sys.prefix}/lib/python3/site-packages/django/apps.py", line 9, in load\n'


def frame(file: object, line: int) -> str:
    return f'  File "{file}", line {line}, in x\n    x()\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "prepare.log"


def test_code_that_does_not_load_is_told_with_its_place(log: Path) -> None:
    """The innermost frame of the author's code, and never the advice to delete data."""
    ours = state.ROOT / "tasks_app/workflows/registry.py"
    frames = PACKAGE + frame("/srv/app/durable.py", 3) + frame("/srv/app/durable.py", 17)
    error = "tasks_app.domain.errors.ConfigurationError: two workflows are called greet\n"
    log.write_text(HEAD + frames + frame(ours, 60) + error)
    cause, remedy = blame.find_cause(log)
    assert cause == (
        "the code does not load (tasks_app.domain.errors.ConfigurationError: two workflows are "
        "called greet: see /srv/app/durable.py, line 17)"
    )
    assert "mend your code" in remedy
    assert "fresh" not in remedy


def test_the_last_traceback_counts(log: Path) -> None:
    """An exception that was handled in between has an own traceback before it."""
    first = HEAD + frame("/srv/app/a.py", 1) + "KeyError: 1\n"
    log.write_text(f"{first}\nDuring handling …\n\n{HEAD}{frame('/srv/app/b.py', 2)}ValueError\n")
    assert blame.find_cause(log)[0] == (
        "the code does not load (ValueError: see /srv/app/b.py, line 2)"
    )


def test_data_that_does_not_fit_may_be_deleted(log: Path) -> None:
    """Only what the database says of what it holds leads to that advice."""
    log.write_text(f"{HEAD}{PACKAGE}django.db.utils.ProgrammingError: column x does not exist\n")
    assert blame.find_cause(log) == ("the local data does not fit the code", blame.FRESH)


def test_database_that_does_not_answer_is_nobodys_data(log: Path) -> None:
    """Deleting data would not bring the server back."""
    log.write_text(f"{HEAD}{PACKAGE}psycopg.OperationalError: connection refused\n")
    assert blame.find_cause(log) == ("the database does not answer, or refuses the login", "")


def test_log_without_a_traceback_blames_nothing_in_particular(log: Path) -> None:
    """Neither does a log that is not there."""
    assert blame.find_cause(log)[0] == "the code does not load"
