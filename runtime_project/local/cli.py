"""The local verbs: demo, up, down (stop), test, bench, schedules, faults. Parses, runs, returns a code."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from runtime_project.local import (
    demo,
    interrupts,
    ports,
    processes,
    schedules,
    separate,
    state,
    testing,
)
from runtime_project.local.processes import LocalStackError
from runtime_project.local.stack import LocalStack, StackOptions

EXIT_FAILED = 1
EXIT_USAGE = 2
DOWN_SECONDS = 20.0
# What --fresh deletes; anything else in the folder is not ours.
FRESH = (
    "postgres",
    "redis",
    "artifacts",
    "published",
    "static",
    "logs",
    "demo",
    "input",
    "input-folders",
    "credentials",
)

Story = Callable[[LocalStack], int]


def main(arguments: Sequence[str]) -> int:
    """Run one local verb and return its exit code."""
    if arguments[0] == "test":
        return testing.run(_without_wheels(arguments[1:]))
    if arguments[0] == "schedules":
        return schedules.run(_without_wheels(arguments[1:]))
    if arguments[0] in separate.PROGRAMS:
        return separate.run(arguments[0], _without_wheels(arguments[1:]))
    options = _parser().parse_args(arguments)
    if options.verb in {"down", "stop"}:
        return stop_running()
    story: Story = stay_up
    if options.verb == "demo":
        story = demo.story(
            input_folder=options.input,
            ends=options.exit or (not sys.stdin.isatty() and not options.stay),
        )
    return run_stack(options, story)


def run_stack(options: argparse.Namespace, story: Story) -> int:
    """Start the stack, run the story on it, stop it; every way out leaves nothing running."""
    home = state.home()
    running = state.find_running(home)
    if running is not None and getattr(options, "exit", False):
        print("A stack runs here already; run python3 manage.py down first.", file=sys.stderr)
        return EXIT_USAGE
    if running is not None:
        print(f"Already running here (pid {running.supervisor.pid}).\n{running.summary}")
        print("Stop it with: python3 manage.py down")
        return 0
    if options.fresh and not _delete_data(home, ask=not options.no_input):
        return EXIT_USAGE
    stack_options = _choose_address(options, home)
    if stack_options is None:
        return EXIT_USAGE
    stack = LocalStack(stack_options, report=lambda line: print(f"  {line}", flush=True))
    interrupts.install(stack.kill)
    try:
        with stack:
            return _run_story(stack, story)
    except interrupts.Interrupted:
        return interrupts.EXIT_INTERRUPTED
    except LocalStackError as error:
        print(describe_failure(error), file=sys.stderr)
        return EXIT_FAILED


def stay_up(stack: LocalStack) -> int:
    """Show where the stack answers and keep it up until somebody ends it."""
    print(f"\n{stack.summary()}\nCtrl-C stops it.", flush=True)
    stack.stay_up()


def stop_running() -> int:
    """Stop the stack of this folder, if one runs; other folders' stacks are never touched."""
    home = state.home()
    running = state.find_running(home)
    if running is None:
        print("Nothing is running here.")
        return 0
    with suppress(ProcessLookupError):
        os.kill(running.supervisor.pid, signal.SIGTERM)
    if not processes.wait_until(lambda: not running.supervisor.is_alive(), seconds=DOWN_SECONDS):
        with suppress(ProcessLookupError):
            os.kill(running.supervisor.pid, signal.SIGKILL)
        print("It did not stop in time and was killed.")
    print(f"Stopped {running.url}; the data stays.")
    return 0


def describe_failure(error: LocalStackError) -> str:
    """Return what a person needs: log end, what failed, why perhaps, what to try."""
    lines = processes.last_lines(error.log)
    if lines:
        lines = [f"--- last lines of {error.log}", *lines, "---"]
    lines.append(f"✗ {error}.")
    if error.cause:
        lines.append(f"  Likely cause: {error.cause}.")
    if error.remedy:
        lines.append(f"  Try: {error.remedy}")
    return "\n".join(lines)


def _run_story(stack: LocalStack, story: Story) -> int:
    try:
        return story(stack)
    except interrupts.Interrupted:
        count = stack.count_live_tasks()
        print("\nStopping …", flush=True)
        if count:
            tasks = "1 task" if count == 1 else f"{count} tasks"
            print(f"{tasks} will continue at the next start.", flush=True)
        raise


def _choose_address(options: argparse.Namespace, home: Path) -> StackOptions | None:
    host: str = options.host
    if host != "127.0.0.1":
        print(f"Warning: listening on {host} without TLS; everybody who reaches it may log in.")
    port: int | None = options.port
    if port is None:
        port = ports.find_free(host)
        if port is None:
            print(f"Ports {ports.FIRST_PORT} to {ports.LAST_PORT} are busy: choose one, --port N.")
            return None
        if port != ports.FIRST_PORT:
            print(f"Port {ports.FIRST_PORT} is busy; using {port}.")
    elif not ports.is_free(host, port):
        holder = ports.find_holder(port)
        print(f"Port {port} is busy" + (f": {holder} holds it." if holder else "."))
        return None
    folders = (options.input,) if getattr(options, "input", None) else ()
    return StackOptions(home, host, port, folders, verbose=options.verbose)


def _delete_data(home: Path, *, ask: bool) -> bool:
    if ask:
        if not sys.stdin.isatty():
            print("--fresh deletes all local tasks; confirm it with --no-input.")
            return False
        answer = input(f"Delete all local tasks and data in {home}? [y/N] ")
        if answer.strip().lower() not in {"y", "yes"}:
            return False
    for name in FRESH:
        path = home / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return True


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


def _without_wheels(arguments: Sequence[str]) -> list[str]:
    kept = list(arguments)
    if "--wheels" in kept:
        at = kept.index("--wheels")
        del kept[at : at + 2]
    return [a for a in kept if not a.startswith("--wheels=")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="manage.py")
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--host", default="127.0.0.1", help="address to listen on")
    common.add_argument("--port", type=_port, help="default: 8000 or the next free one")
    common.add_argument("--fresh", action="store_true", help="delete the local data first")
    common.add_argument("--no-input", action="store_true", help="ask nothing")
    common.add_argument("--wheels", metavar="DIR", help="install from this folder, no network")
    common.add_argument("-v", "--verbose", action="store_true", help="show the logs")
    verbs.add_parser("up", parents=[common], help="start the local stack and keep it up")
    demo = verbs.add_parser("demo", parents=[common], help="run the main job on real documents")
    demo.add_argument("--input", type=_folder, metavar="DIR", help="review this folder's documents")
    ending = demo.add_mutually_exclusive_group()
    ending.add_argument("--exit", action="store_true", help="end after the job")
    ending.add_argument("--stay", action="store_true", help="stay up also without a terminal")
    for verb in ("down", "stop"):
        verbs.add_parser(verb, help="stop the local stack of this folder")
    return parser
