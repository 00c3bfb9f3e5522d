"""`python -m tests.bench engine`: parse, measure section by section, print, write JSON."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from tests.bench import world as worlds
from tests.bench.figures import Figure, print_table, write_json
from tests.bench.world import World

Section = Callable[[World], Iterator[Figure]]
SECTIONS = (
    "steps",
    "checkpoint",
    "effects",
    "throughput",
    "latency",
    "takeover",
    "handover",
    "growth",
    "map",
    "submission",
    "http",
    "storage",
)


def main(arguments: list[str]) -> int:
    """Measure what was asked for; 0 when every section could be measured, whatever it showed."""
    options = _parser().parse_args(arguments)
    console = Console(width=max(110, Console().width))
    figures: list[Figure] = []
    failed: list[str] = []
    started = time.monotonic()
    with worlds.built(quick=options.quick) as world:
        sections = _sections()
        for name in options.only:
            console.print(f"[bold]{name}[/]", end=" ", highlight=False)
            began = time.monotonic()
            try:
                figures += list(sections[name](world))
            except Exception:  # noqa: BLE001 - the other sections are still worth measuring
                failed.append(name)
                console.print_exception()
            console.print(f"{time.monotonic() - began:.0f} s", highlight=False)
    print_table(figures, console)
    if options.json:
        facts: dict[str, object] = {
            "seconds": round(time.monotonic() - started),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "failed": failed,
        }
        write_json(options.json, figures, facts)
    for name in failed:
        console.print(f"✗ {name} could not be measured")
    return 1 if failed else 0


def _sections() -> dict[str, Section]:
    # Imported late: they import rows and engine, which need settings.
    from tests.bench import doors, fleet, maps, steps

    return {
        "steps": steps.measure_steps,
        "checkpoint": steps.measure_checkpoint,
        "effects": steps.measure_effects,
        "throughput": fleet.measure_throughput,
        "latency": fleet.measure_latency,
        "takeover": fleet.measure_takeover,
        "handover": fleet.measure_handover,
        "growth": steps.measure_growth,
        "map": maps.measure_map,
        "submission": doors.measure_submission,
        "http": doors.measure_http,
        "storage": steps.measure_storage,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="manage.py bench")
    parser.add_argument("subject", choices=["engine"], help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument(
        "--only", type=_names, default=list(SECTIONS), metavar="NAMES", help=",".join(SECTIONS)
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first look")
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = set(names) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
