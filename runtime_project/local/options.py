"""What the local verbs are called, do and take. Standard library only: `--help` needs no environment."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runtime_project.local import ports

VERBS = {
    "demo": "run the main job on real documents, kill a worker on the way, and tell",
    "up": "start the local stack and keep it up",
    "down": "stop the local stack of this folder (also: stop)",
    "test": "run the tests on servers of their own",
    "bench": "measure engine, streams, API or MCP on servers of its own",
    "schedules": "play seeded schedules over the real engine",
    "faults": "hurt real processes, then count what happened",
}


def overview() -> str:
    """Return the local verbs, one a line."""
    lines = [f"  {verb:<10} {does}" for verb, does in VERBS.items()]
    return "\n".join(["Local verbs (manage.py VERB --help tells more):", "", *lines, ""])


def parser(verb: str) -> argparse.ArgumentParser:
    """Return the parser of `demo`, `up`, `down` or `stop`; its usage names all that it takes."""
    made = argparse.ArgumentParser(
        prog=f"manage.py {verb}", description=VERBS.get(verb, VERBS["down"]).capitalize() + "."
    )
    if verb in {"down", "stop"}:
        return made
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=_port, help="default: 8000 or the next free one")
    made.add_argument("--fresh", action="store_true", help="delete the local data first")
    made.add_argument("--no-input", action="store_true", help="ask nothing")
    made.add_argument("--wheels", metavar="DIR", help="install from this folder, no network")
    made.add_argument("-v", "--verbose", action="store_true", help="show the logs")
    if verb == "demo":
        made.add_argument("--input", type=_folder, metavar="DIR", help="review these documents")
        ending = made.add_mutually_exclusive_group()
        ending.add_argument("--exit", action="store_true", help="end after the job")
        ending.add_argument("--stay", action="store_true", help="stay up also without a terminal")
    return made


def at_least_one(text: str) -> int:
    """Return a count that a person wrote.

    Raises:
        argparse.ArgumentTypeError: no whole number from 1.
    """
    with suppress(ValueError):
        number = int(text)
        if number >= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")


def without_wheels(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the one that only the environment needs."""
    kept = list(arguments)
    if "--wheels" in kept:
        at = kept.index("--wheels")
        del kept[at : at + 2]
    return [a for a in kept if not a.startswith("--wheels=")]


def _folder(text: str) -> Path:
    # An unknown ~user, a circle of links, a folder above that may not be entered.
    with suppress(OSError, RuntimeError):
        path = Path(text).expanduser().resolve()
        if path.is_dir():
            return path
    raise argparse.ArgumentTypeError(f"{text} is not a folder, or may not be read")


def _port(text: str) -> int:
    try:
        return ports.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
