"""The local verbs: demo, up, down (stop), test, bench, schedules, faults. Parses, runs, returns a code."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from runtime_project.local import (
    demo,
    interrupts,
    options,
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
    verb, rest = arguments[0], options.without_wheels(arguments[1:])
    if verb == "test":
        return testing.run(rest)
    if verb == "schedules":
        return schedules.run(rest)
    if verb in separate.PROGRAMS:
        return separate.run(verb, rest)
    given = options.parser(verb).parse_args(arguments[1:])
    if verb in {"down", "stop"}:
        return stop_running()
    story: Story = stay_up
    if verb == "demo":
        story = demo.story(
            input_folder=given.input,
            ends=given.exit or (not sys.stdin.isatty() and not given.stay),
        )
    return run_stack(given, story)


def run_stack(given: argparse.Namespace, story: Story) -> int:
    """Start the stack, run the story on it, stop it; every way out leaves nothing running."""
    home = state.home()
    running = state.find_running(home)
    if running is not None:
        return _meet_running(given, running)
    if given.fresh and not _delete_data(home, ask=not given.no_input):
        return EXIT_USAGE
    stack_options = _choose_address(given, home)
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


def _meet_running(given: argparse.Namespace, running: state.RunningStack) -> int:
    """Show the stack that runs here; refuse what asks for another than that one."""
    here = urlsplit(running.url)
    elsewhere = given.port not in {None, here.port}
    if elsewhere or given.fresh or getattr(given, "exit", False):
        print(
            f"A stack runs here already, on {running.url}; run python3 manage.py down first.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    print(f"Already running here (pid {running.supervisor.pid}).\n{running.summary}")
    print("Stop it with: python3 manage.py down")
    return 0


def _choose_address(given: argparse.Namespace, home: Path) -> StackOptions | None:
    host: str = given.host
    if host != "127.0.0.1":
        print(f"Warning: listening on {host} without TLS; everybody who reaches it may log in.")
    port: int | None = given.port
    listener = ports.listen_anywhere(host) if port is None else ports.listen(host, port)
    if listener is None and port is None:
        print(f"Ports {ports.FIRST_PORT} to {ports.LAST_PORT} are busy: choose one, --port N.")
        return None
    if listener is None:
        holder = ports.find_holder(port or 0)
        print(f"Port {port} is busy" + (f": {holder} holds it." if holder else "."))
        return None
    chosen = listener.getsockname()[1]
    if port is None and chosen != ports.FIRST_PORT:
        print(f"Port {ports.FIRST_PORT} is busy; using {chosen}.")
    folders = (given.input,) if getattr(given, "input", None) else ()
    return StackOptions(home, listener, host, folders, verbose=given.verbose)


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
