"""`python -m tests.bench SUBJECT`: parse, measure section by section, print, write JSON."""

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
# What can be measured, and its sections in the order in which they are measured.
SUBJECTS = {
    "engine": (
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
    ),
    "streams": ("tasks", "runs"),
    "api": ("creation", "snapshot"),
    "mcp": ("get",),
}


def main(arguments: list[str]) -> int:
    """Measure what was asked for; 0 when every section could be measured, whatever it showed."""
    options = _parse(arguments)
    console = Console(width=max(110, Console().width))
    figures: list[Figure] = []
    failed: list[str] = []
    started = time.monotonic()
    with worlds.built(quick=options.quick) as world:
        sections = _sections(options.subject)
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


def _sections(subject: str) -> dict[str, Section]:
    # Imported late: they import rows and engine, which need settings.
    from tests.bench import api, doors, fleet, maps, mcp, steps, streams

    sections: dict[str, dict[str, Section]] = {
        "engine": {
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
        },
        "streams": {
            "tasks": streams.measure_task_streams,
            "runs": streams.measure_run_streams,
        },
        "api": {"creation": api.measure_creation, "snapshot": api.measure_snapshot},
        "mcp": {"get": mcp.measure_get},
    }
    return sections[subject]


def _parse(arguments: list[str]) -> argparse.Namespace:
    told = "; ".join(f"{subject}: {','.join(names)}" for subject, names in SUBJECTS.items())
    parser = argparse.ArgumentParser(prog="manage.py bench")
    parser.add_argument("subject", choices=SUBJECTS, help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--only", metavar="NAMES", help=f"sections; {told}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first look")
    options = parser.parse_args(arguments)
    known = SUBJECTS[options.subject]
    options.only = options.only.split(",") if options.only else list(known)
    unknown = set(options.only) - set(known)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
