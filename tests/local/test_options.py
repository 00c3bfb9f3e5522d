"""The local verbs explain themselves, and refuse what they cannot do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manage import LOCAL_VERBS
from runtime_project.local import cli, options

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
    ("arguments", "said"),
    [
        (["faults", "--only", "nonsense", "--count", "1"], "no kind nonsense; there are kill_"),
        (["faults", "--count", "-3"], "-3 is not a whole number from 1"),
        (["faults", "--count", "x"], "x is not a whole number from 1"),
        (["faults", "--pace", "0"], "0 is not a number above 0"),
        (["faults", "--seconds", "nan"], "nan is not a number above 0"),
        (["schedules", "--seeds", "-3"], "-3 is not a whole number from 1"),
        (["bench", "engine", "--only", "nonsense"], "no section nonsense"),
    ],
)
def test_programs_of_the_tests_refuse_what_they_cannot_do(arguments: list[str], said: str) -> None:
    """Usage errors are told with exit code 2 before any server starts."""
    code = "import sys; from runtime_project.local import cli; sys.exit(cli.main(sys.argv[1:]))"
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr
