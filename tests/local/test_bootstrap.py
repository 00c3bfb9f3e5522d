"""The environment below a project folder: made once, made anew when it no longer fits."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runtime_project import bootstrap

ROOT = Path(__file__).resolve().parents[2]

# Environments are really made and packages installed here, with the slow real things.
pytestmark = pytest.mark.crash


def make_wheel(folder: Path, name: str) -> str:
    """Write a minimal wheel and return its lock line."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def make_project(root: Path) -> Path:
    """Make a project folder whose locks name tiny packages."""
    (root / "requirements").mkdir(parents=True)
    lines = {name: make_wheel(root / "wheels", name) for name in ("tool", "one", "two")}
    (root / "requirements" / "build.txt").write_text(lines["tool"])
    (root / "requirements" / "oauth.txt").write_text(lines["one"])
    (root / "requirements" / "dev.txt").write_text(lines["one"] + lines["two"])
    return root


def ensure(root: Path, *, dev: bool, **environment: str) -> subprocess.Popen[str]:
    """Run ensure_environment in a process of its own, as manage.py does."""
    code = (
        "import sys; from pathlib import Path; from runtime_project import bootstrap\n"
        "root, dev, wheels = Path(sys.argv[1]), sys.argv[2] == '1', sys.argv[3]\n"
        "try: bootstrap.ensure_environment(root, dev=dev, wheels=Path(wheels) if wheels else None)\n"
        "except bootstrap.BootstrapError as error: sys.exit(str(error))\n"
    )
    wheels = environment.pop("WHEELS", str(root / "wheels"))
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(root), "1" if dev else "0", wheels],
        cwd=ROOT,
        env={**clean, "PIP_CONFIG_FILE": os.devnull, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def can_import(root: Path, name: str) -> bool:
    command = [str(bootstrap.venv_python(root)), "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A project whose environment two runs made at the same time, and what they said."""
    root = make_project(tmp_path_factory.mktemp("project") / "here")
    runs = [ensure(root, dev=False) for _ in range(2)]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert not bootstrap.is_ready(root, dev=True)
    return root, outputs


@pytest.fixture
def project(made: tuple[Path, list[str]]) -> Path:
    root, _ = made
    assert bootstrap.is_ready(root, dev=False)
    return root


def test_two_runs_at_once_make_the_environment_once(made: tuple[Path, list[str]]) -> None:
    """One run makes the environment, the other waits and uses it."""
    assert "".join(made[1]).count("✓ Python environment") == 1
    assert "".join(made[1]).count("waiting for it") <= 1
    assert can_import(made[0], "one")


def test_development_lock_is_added_to_a_complete_environment(project: Path) -> None:
    """Testing after a demo adds packages; a later demo finds its environment still complete."""
    marker = project / ".venv" / "marker"
    marker.touch()
    run = ensure(project, dev=True)
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert marker.exists()
    assert can_import(project, "two")
    assert bootstrap.is_ready(project, dev=True)
    assert bootstrap.is_ready(project, dev=False)


def test_changed_lock_is_not_ready(project: Path) -> None:
    """The environment belongs to the exact text of its locks."""
    lock = project / "requirements" / "build.txt"
    text = lock.read_text()
    lock.write_text(text + "# changed\n")
    try:
        assert not bootstrap.is_ready(project, dev=False)
    finally:
        lock.write_text(text)


def test_moved_folder_is_not_ready(project: Path) -> None:
    """An environment holds absolute paths, so that a moved project makes it anew."""
    moved = project.rename(project.with_name("moved"))
    try:
        assert not bootstrap.is_ready(moved, dev=False)
    finally:
        moved.rename(project)


def test_environment_of_another_python_is_made_anew(project: Path) -> None:
    """Nothing of an environment made by another Python is kept, but who tested goes on testing."""
    stamp = project / ".venv" / bootstrap.STAMP
    text = stamp.read_text().replace(sys.version.split()[0], "3.11.0")
    stamp.write_text(text.replace('"dev": false', '"dev": true'))
    left_over = project / ".venv" / "left-over"
    left_over.touch()
    assert not bootstrap.is_ready(project, dev=False)
    run = ensure(project, dev=False)
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert not left_over.exists()
    assert bootstrap.is_ready(project, dev=True)


def test_without_packages_one_sentence_names_both_ways(tmp_path: Path) -> None:
    """Offline and incomplete: connect once, or --wheels; a foreign .venv is kept aside."""
    root = make_project(tmp_path / "offline")
    (root / "empty").mkdir()
    (root / ".venv").mkdir()
    (root / ".venv" / "of-somebody-else").touch()
    run = ensure(root, dev=False, WHEELS=str(root / "empty"))
    output, _ = run.communicate()
    assert run.returncode == 1
    assert "connect this machine once, or pass --wheels DIR" in output
    assert "Traceback" not in output
    assert (root / ".venv-1" / "of-somebody-else").exists()
    assert not bootstrap.is_ready(root, dev=False)
