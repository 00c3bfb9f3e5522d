"""`manage.py schedules`: play seeded schedules over the real engine, as many as one likes."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from runtime_project.local import options, state

TESTS = "tests/model/test_schedules.py"
SEEDS = "PERDURE_SEEDS"


def run(arguments: Sequence[str]) -> int:
    """Play the seeds that are asked for; return 0 when no promise was broken."""
    given = _parser().parse_args(arguments)
    first, last = given.first, given.first + given.seeds - 1
    if given.seed is not None:
        first = last = given.seed
    alone = last - first < 100 or "DATABASE_URL" in os.environ
    command = [sys.executable, "-m", "pytest", TESTS, "-m", "crash", "-k", "no_order", "-x", "-q"]
    command += [] if alone else ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "worksteal"]
    environment = {**os.environ, SEEDS: f"{first}-{last}"}
    print(f"Playing seeds {first} to {last}.", flush=True)
    return subprocess.run(command, cwd=state.ROOT, env=environment, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="manage.py schedules", description=__doc__)
    parser.add_argument(
        "--seeds", type=options.at_least_one, default=1000, metavar="N", help="how many"
    )
    parser.add_argument("--from", type=options.at_least_one, default=1, dest="first", metavar="N")
    parser.add_argument(
        "--seed", type=options.at_least_one, metavar="N", help="play this one alone"
    )
    return parser
