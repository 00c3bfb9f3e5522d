"""`python -m tests.faults`: parse, hurt, judge, print, keep; 0 only if every promise was kept."""

import argparse
import os
import platform
import random
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from runtime_project.local.options import at_least_one
from tests.faults import world as worlds
from tests.faults.weights import WEIGHTS


def main(arguments: list[str]) -> int:
    """Run the bed once."""
    console = Console(width=max(110, Console().width))
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    with worlds.built() as world:
        # Imported late: they import rows and engine, which need settings.
        from tests.faults.judging import judge
        from tests.faults.report import Report
        from tests.faults.run import Run

        kinds = options.only or list(WEIGHTS)
        console.print(
            f"{options.count} faults of {len(kinds)} kinds, seed {options.seed}: python3 manage.py "
            f"faults --count {options.count} --seed {options.seed}",
            highlight=False,
        )
        run = Run(
            world,
            count=options.count,
            kinds=kinds,
            seed=options.seed,
            seconds=options.seconds,
            faults_a_second=options.pace,
        )
        outcome = run.go()
        verdict = judge(run.scene)
        report = Report(_facts(options, began), run.scene, outcome, verdict)
        if not report.is_good:
            worlds.keep_logs(world, options.report.with_suffix(".logs"))
    report.show(console)
    report.write(options.report)
    console.print(f"Kept in {options.report}", highlight=False)
    return 0 if report.is_good else 1


def _facts(options: argparse.Namespace, began: float) -> dict[str, Any]:
    import django
    from django.db import connection

    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": options.seed,
        "count": options.count,
        "seconds": round(time.monotonic() - began, 1),
        "python": platform.python_version(),
        "django": django.get_version(),
        "postgresql": connection.cursor().connection.info.server_version,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="manage.py faults")
    parser.add_argument(
        "--count", type=at_least_one, default=500, help="how many faults (default 500)"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=4 * 3600, help="stop giving faults after so long"
    )
    parser.add_argument("--pace", type=_positive, default=3.3, help="faults a second (default 3.3)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    parser.add_argument(
        "--only", type=_kinds, metavar="KINDS", help=f"these kinds alone: {','.join(WEIGHTS)}"
    )
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    parser.add_argument(
        "--report", type=Path, default=Path(f".runtime/faults/{name}.json"), metavar="FILE"
    )
    return parser


def _kinds(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(WEIGHTS))
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no kind {', '.join(unknown)}; there are {', '.join(WEIGHTS)}"
        )
    return names


def _positive(text: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if 0 < number < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a number above 0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
