"""Prepares `.venv` from the hashed locks and moves the running command into it.

Standard library only; loaded by path from manage.py, before anything is installed.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
BUILD_LOCK = "build.txt"
# What the local stack runs: the runtime with its optional extras.
LOCAL_LOCK = "oauth.txt"
DEV_LOCK = "dev.txt"
STAMP = "perdure-environment.json"
# The newest Python that every locked package has a build for.
NEWEST_PYTHON = (3, 13)
_UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "Temporary failure in name resolution",
    "Failed to establish a new connection",
    "Could not find a version that satisfies",
    "ProxyError",
    "No route to host",
)


class BootstrapError(Exception):
    """The environment cannot be made; the text is what a person should read."""


def enter(verb: str, arguments: Sequence[str]) -> None:
    """Return inside a complete environment for a local verb, re-executing Python if needed."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if verb in {"down", "stop"} and not is_ready(ROOT, dev=False):
        print("Nothing is running here.")
        sys.exit(0)
    wheels = _option(arguments, "--wheels")
    try:
        ensure_environment(
            ROOT,
            dev=verb == "test",
            wheels=Path(wheels).resolve() if wheels else None,
            verbose="-v" in arguments or "--verbose" in arguments,
        )
    except BootstrapError as error:
        sys.exit(str(error))
    _continue_inside(arguments)


def enter_for_django(arguments: Sequence[str]) -> None:
    """Return where Django can be imported: our environment, or the image's own packages."""
    if is_ready(ROOT, dev=False):
        _continue_inside(arguments)
    elif not has_django():
        enter("django", arguments)


def has_django() -> bool:
    """Tell whether Django's commands can run at once: in our environment, or in this Python."""
    return is_ready(ROOT, dev=False) or importlib.util.find_spec("django") is not None


def ensure_environment(
    root: Path, *, dev: bool, wheels: Path | None = None, verbose: bool = False
) -> Path:
    """Return the Python of a complete environment below `root`, made when it is not there yet.

    One run makes it while others wait. An environment made by another Python, for another folder
    or from another lock is made anew; the development lock is added to a complete runtime one.

    Raises:
        BootstrapError: no venv module, no network and no wheels, or pip failed.
    """
    if is_ready(root, dev=dev):
        return venv_python(root)
    _require_venv_module()
    with _exclusive(root / ".venv.lock"):
        if not is_ready(root, dev=dev):
            with step("Python environment"):
                _build(root, dev=dev, wheels=wheels, verbose=verbose)
    return venv_python(root)


def is_ready(root: Path, *, dev: bool) -> bool:
    """Tell whether the environment below `root` is complete for this folder, Python and lock."""
    stamp = _read_stamp(root)
    if not venv_python(root).exists() or stamp != make_stamp(root, dev=bool(stamp.get("dev"))):
        return False
    return bool(stamp.get("dev")) or not dev


def _read_stamp(root: Path) -> dict[str, object]:
    try:
        stamp = json.loads((root / ".venv" / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def make_stamp(root: Path, *, dev: bool) -> dict[str, object]:
    """Return what a complete environment depends on."""
    locks = [BUILD_LOCK, LOCAL_LOCK, *([DEV_LOCK] if dev else [])]
    digest = hashlib.sha256()
    for lock in locks:
        digest.update((root / "requirements" / lock).read_bytes())
    return {
        "dev": dev,
        "locks": digest.hexdigest(),
        "python": f"{sys.implementation.name} {sys.version.split()[0]} {_base_python()}",
        "folder": str(root),
    }


def write_stamp(root: Path, *, dev: bool) -> None:
    """Declare the environment below `root` complete."""
    (root / ".venv" / STAMP).write_text(json.dumps(make_stamp(root, dev=dev), indent=1) + "\n")


def venv_python(root: Path) -> Path:
    """Return the path of the environment's Python."""
    return root / ".venv" / "bin" / "python"


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Show one line for one step: what runs, then how long it took."""
    out = sys.stdout
    started = time.monotonic()
    if out.isatty():
        print(f"  {text} …", end="", flush=True)
    try:
        yield
    except BaseException:
        if out.isatty():
            print()
        raise
    start = "\r\x1b[K" if out.isatty() else ""
    print(f"{start}✓ {text} {time.monotonic() - started:.1f} s", flush=True)


def _build(root: Path, *, dev: bool, wheels: Path | None, verbose: bool) -> None:
    venv = root / ".venv"
    extends = dev and is_ready(root, dev=False)
    # Whoever has tested here goes on testing: a demo after a changed lock keeps the tools.
    dev = dev or bool(_read_stamp(root).get("dev"))
    if not extends:
        _clear(venv)
    # Ours and not complete: a build that is cut off is begun anew.
    venv.mkdir(exist_ok=True)
    (venv / STAMP).write_text("{}\n")
    if not extends:
        _run([_base_python(), "-m", "venv", str(venv)], verbose=verbose)
        _pip(root, BUILD_LOCK, wheels=wheels, verbose=verbose)
    lock = DEV_LOCK if dev else LOCAL_LOCK
    if wheels is not None or not _uv(root, lock):
        _pip(root, lock, wheels=wheels, verbose=verbose)
    _compile(root)
    write_stamp(root, dev=dev)


def _clear(venv: Path) -> None:
    """Remove an environment of ours; put one that somebody else made aside."""
    if (venv / STAMP).exists() or not venv.exists():
        shutil.rmtree(venv, ignore_errors=True)
        return
    number = 1
    while (aside := venv.with_name(f"{venv.name}-{number}")).exists():
        number += 1
    venv.rename(aside)
    print(f"\nThe .venv that was here is now {aside.name}.")


def _uv(root: Path, lock: str) -> bool:
    """Install what the lock lists with uv, several times faster than pip; tell whether it worked.

    uv does not read pip's configuration. Whoever names an index of their own gets pip, and so does
    whoever cannot reach the public one: pip then also says what is wrong.
    """
    program = venv_python(root).with_name("uv")
    if not program.exists() or {"PIP_INDEX_URL", "PIP_NO_INDEX"} & os.environ.keys():
        return False
    command = [str(program), "pip", "install", "--quiet", "--no-config", "--no-deps"]
    command += ["--require-hashes", "--no-build-isolation", "--link-mode", "copy"]
    command += ["--python", str(venv_python(root)), "-r", str(root / "requirements" / lock)]
    patience = {"UV_HTTP_TIMEOUT": "30", "UV_HTTP_RETRIES": "1", **os.environ}
    answer = subprocess.run(command, env=patience, capture_output=True, check=False)
    return answer.returncode == 0


def _pip(root: Path, lock: str, *, wheels: Path | None, verbose: bool) -> None:
    """Install exactly what the lock lists, hashes checked, build tools from the lock too."""
    command = [str(venv_python(root)), "-m", "pip", "install", "--require-hashes", "--no-deps"]
    command += ["--no-build-isolation", "--use-pep517", "--no-compile", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--progress-bar", "off"]
    if wheels is not None:
        command += ["--no-index", "--find-links", str(wheels)]
    _run([*command, "-r", str(root / "requirements" / lock)], verbose=verbose)


def _compile(root: Path) -> None:
    """Compile the packages on all cores: pip uses one, and PYTHONDONTWRITEBYTECODE may be set.

    Without it each of the six processes of the local stack would compile everything at each start.
    """
    command = [str(venv_python(root)), "-m", "compileall", "-q", "-j", "0", str(root / ".venv")]
    # Some packages carry files that are no valid Python, such as templates; they do not matter.
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _run(command: Sequence[str], *, verbose: bool) -> None:
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONHOME", "PYTHONPATH"):
        environment.pop(name, None)
    if verbose:
        print()
    answer = subprocess.run(
        command,
        env=environment,
        text=True,
        errors="replace",
        stdout=None if verbose else subprocess.PIPE,
        stderr=None if verbose else subprocess.STDOUT,
        check=False,
    )
    if answer.returncode == 0:
        return
    output = answer.stdout or ""
    if sys.version_info[:2] > NEWEST_PYTHON:
        raise BootstrapError(
            f"Not every package has a build for Python {sys.version_info[0]}."
            f"{sys.version_info[1]} yet: use python3.11, python3.12 or python3.13."
        )
    if any(sign in output for sign in _UNREACHABLE):
        raise BootstrapError(
            "The environment is incomplete and its packages cannot be downloaded: connect this "
            "machine once, or pass --wheels DIR with the files that `python3 -m pip download "
            f"--no-deps -r requirements/{BUILD_LOCK} -r requirements/{LOCAL_LOCK} -d DIR` "
            "saved on a connected one."
        )
    lines = "\n".join(output.strip().splitlines()[-20:])
    raise BootstrapError(f"{lines}\nThe environment could not be made; try again with -v.")


def _require_venv_module() -> None:
    missing = [m for m in ("venv", "ensurepip") if importlib.util.find_spec(m) is None]
    if missing:
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise BootstrapError(
            f"This Python lacks the module {missing[0]}; install it: apt-get install {name}"
        )


def _base_python() -> str:
    """Return the Python that environments are made from, also when asked from inside one."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _continue_inside(arguments: Sequence[str]) -> None:
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        _become(ROOT, arguments)


def _become(root: Path, arguments: Sequence[str]) -> NoReturn:
    python = str(venv_python(root))
    sys.stdout.flush()
    os.execv(python, [python, str(root / "manage.py"), *arguments])  # noqa: S606 - same command, other Python


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run prepares the environment; waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _option(arguments: Sequence[str], name: str) -> str:
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return ""
