"""`manage.py test`: the whole check in stages, each stage one pytest process."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime_project.local import state

BROWSER_COMMAND = "apt-get install -y chromium fonts-noto-cjk"
# pytest's own code for "no test matched", which a filter may well cause in one of the stages.
NO_TESTS_COLLECTED = 5


@dataclass(frozen=True)
class Stage:
    """One pytest run over the tests with certain markers."""

    name: str
    markers: str
    parallel: bool = False


# With a Chromium the browser tests are spread among the others: both cores are busy to the end.
SUITE = Stage("suite", "not crash and not slow", parallel=True)
SUITE_WITHOUT_BROWSER = Stage("suite", "not crash and not slow and not browser", parallel=True)
CRASH = Stage("crash", "crash or slow")
CRASH_WITHOUT_BROWSER = Stage("crash", "(crash or slow) and not browser")


def run(arguments: Sequence[str]) -> int:
    """Run the stages that the arguments and this machine allow; pass the rest to pytest.

    Returns:
        0 when every stage passed; names what was not run and how to make it run.
    """
    passed_on = [a for a in arguments if a not in {"--crash", "--all"}]
    if any(a == "-m" or a.startswith("--collect-only") for a in passed_on):
        return _pytest(passed_on)
    browser = find_browser()
    if browser is None and os.environ.get("RT_REQUIRE_BROWSER") == "1":
        print(f"RT_REQUIRE_BROWSER=1, but there is no Chromium: {BROWSER_COMMAND}")
        return 1
    stages = _choose(arguments, has_browser=browser is not None)
    codes = {stage: _run_stage(stage, passed_on) for stage in stages}
    _tell_what_was_left_out(stages, has_browser=browser is not None)
    failed = [code for code in codes.values() if code not in {0, NO_TESTS_COLLECTED}]
    if failed:
        return failed[0]
    return 0 if 0 in codes.values() else NO_TESTS_COLLECTED


def find_browser() -> Path | None:
    """Return the Chromium that browser tests use: $CHROMIUM or the system's."""
    candidate = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
    return candidate if candidate.is_file() else None


def _choose(arguments: Sequence[str], *, has_browser: bool) -> list[Stage]:
    suite = SUITE if has_browser else SUITE_WITHOUT_BROWSER
    crash = CRASH if has_browser else CRASH_WITHOUT_BROWSER
    if "--crash" in arguments:
        return [crash]
    return [suite, crash] if "--all" in arguments else [suite]


def _run_stage(stage: Stage, passed_on: Sequence[str]) -> int:
    started = time.monotonic()
    spread = _spread(passed_on) if stage.parallel else []
    code = _pytest([*passed_on, *spread, "-m", stage.markers])
    word = {0: "passed", NO_TESTS_COLLECTED: "had no matching test"}.get(code, "failed")
    print(f"Stage {stage.name} {word} ({time.monotonic() - started:.0f} s)\n", flush=True)
    return code


def _spread(passed_on: Sequence[str]) -> list[str]:
    """Return how to use the cores: a process each, with servers of its own.

    Named tests, a debugger, and servers given from outside are used by one process.
    """
    alone = any(not word.startswith("-") or word in {"--pdb", "-x"} for word in passed_on)
    if alone or "DATABASE_URL" in os.environ:
        return []
    return ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "worksteal"]


def _pytest(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=state.ROOT, check=False).returncode


def _tell_what_was_left_out(stages: Sequence[Stage], *, has_browser: bool) -> None:
    if not has_browser:
        print(f"Not run: browser tests, there is no Chromium. To run them: {BROWSER_COMMAND}")
    if not {CRASH, CRASH_WITHOUT_BROWSER} & set(stages):
        print("Not run: crash and slow tests. To run them: python3 manage.py test --all")
