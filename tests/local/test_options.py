"""The local verbs explain themselves, and refuse what they cannot do."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from manage import LOCAL_VERBS
from runtime_project.local import cli, options, schedules
from tests.bench.__main__ import main as bench
from tests.faults.__main__ import main as faults

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Path:
    """A copy of the project without an environment."""
    shutil.copy(ROOT / "manage.py", tmp_path)
    shutil.copytree(ROOT / "runtime_project", tmp_path / "runtime_project")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--help"], "--input DIR"),
        (["up", "-h"], "--port"),
        (["help", "down"], "usage: manage.py down"),
        (["help"], "faults"),
        ([], "demo"),
    ],
)
def test_help_installs_nothing(fresh_clone: Path, arguments: list[str], said: str) -> None:
    """Whoever asks what a verb does gets the answer at once, and no environment."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    answer = subprocess.run(
        [python, "-I", "-S", str(fresh_clone / "manage.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert said in answer.stdout
    assert not (fresh_clone / ".venv").exists()


def test_every_local_verb_is_listed() -> None:
    """`manage.py help` names what Django does not know; `stop` stands beside `down`."""
    assert {*options.VERBS, "stop"} == set(LOCAL_VERBS)
    assert all(verb in options.overview() for verb in LOCAL_VERBS)


@pytest.mark.parametrize(
    ("verb", "argument"), [("up", "--pot=1"), ("up", "x"), ("down", "--now"), ("demo", "--exti")]
)
def test_wrong_arguments_are_answered_with_the_verbs_own_usage(
    verb: str, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage names the options of this verb, not the other verbs."""
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, argument])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.startswith(f"usage: manage.py {verb} [-h]")
    assert ("--port" in error) == (verb != "down")


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        (faults, ["--only", "nonsense", "--count", "1"], "no kind nonsense; there are kill_"),
        (faults, ["--count", "-3"], "-3 is not a whole number from 1"),
        (faults, ["--count", "x"], "x is not a whole number from 1"),
        (faults, ["--pace", "0"], "0 is not a number above 0"),
        (faults, ["--seconds", "nan"], "nan is not a number above 0"),
        (schedules.run, ["--seeds", "-3"], "-3 is not a whole number from 1"),
        (bench, ["engine", "--only", "nonsense"], "no section nonsense"),
    ],
)
def test_programs_of_the_tests_refuse_what_they_cannot_do(
    program: Callable[[list[str]], int],
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Usage errors are told with exit code 2 before any server starts."""
    with pytest.raises(SystemExit) as ended:
        program(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_exit_code_of_a_program_is_the_verbs() -> None:
    """`bench` and `faults` are processes of their own; their word is passed on."""
    assert cli.main(["bench", "nothing"]) == 2
