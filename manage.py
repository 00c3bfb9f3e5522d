#!/usr/bin/env python3
"""The one entrance: `manage.py demo`, `up`, `down`, `test`, `bench`, `faults`, any Django command.

Standard library only, and readable by an old Python, until the environment is ready.
"""

import os
import shutil
import sys
import types

ROOT = os.path.dirname(os.path.abspath(__file__))
MINIMUM = (3, 11)
STACK_VERBS = ("demo", "up", "down", "stop")
LOCAL_VERBS = (*STACK_VERBS, "test", "bench", "schedules", "faults")


def main() -> None:
    """Prepare the environment, then run the verb inside it."""
    if sys.version_info < MINIMUM:
        sys.exit(too_old())
    sys.path.insert(0, ROOT)
    bootstrap = load_bootstrap()
    arguments = sys.argv[1:]
    verb = arguments[0] if arguments else "help"
    if verb == "help" and arguments[1:] and arguments[1] in LOCAL_VERBS:
        verb, arguments = arguments[1], [arguments[1], "--help"]
    if is_told_without_environment(bootstrap, verb, arguments):
        return
    if verb in LOCAL_VERBS:
        bootstrap.enter(verb, arguments)
        from runtime_project.local import cli

        sys.exit(cli.main(arguments))
    bootstrap.enter_for_django(arguments)
    run_django(verb)


def is_told_without_environment(
    bootstrap: types.ModuleType, verb: str, arguments: list[str]
) -> bool:
    """Print the help that needs no environment; tell whether nothing is left to do.

    The help of one of our verbs ends the process by itself.
    """
    from runtime_project.local import options

    asked = {"-h", "--help"}.intersection(arguments)
    if verb in STACK_VERBS and asked:
        options.parser(verb).parse_args(["--help"])
    if verb not in {"help", "-h", "--help"} or len(arguments) > 1:
        return False
    print(options.overview())
    return not bootstrap.has_django()


def too_old() -> str:
    """Return one line that names a newer Python on this machine, or asks for one."""
    for name in ("python3.13", "python3.12", "python3.11"):
        if shutil.which(name):
            return f"Python 3.11 or newer is needed; run: {name} manage.py demo"
    return "Python 3.11 or newer is needed: install the package python3.11."


def load_bootstrap() -> types.ModuleType:
    """Load bootstrap.py by path: importing its package would import Celery."""
    import importlib.util

    path = os.path.join(ROOT, "runtime_project", "bootstrap.py")
    spec = importlib.util.spec_from_file_location("perdure_bootstrap", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_django(verb: str) -> None:
    """Hand over to Django, pointed at the running local stack if there is one."""
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from runtime_project.local import state

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")
    is_local = state.use_running_stack(os.environ)
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        hint = "" if is_local else " No local stack runs here: start it with python3 manage.py up."
        sys.exit(f"manage.py {verb}: {error}.{hint}")
    except Exception as error:
        # A workflow that is declared wrongly: its author needs the line, not our stack.
        place = getattr(error, "fields", {}).get("place")
        if type(error).__name__ != "DeclarationError" or place is None:
            raise
        sys.exit(
            "SystemCheckError: System check identified some issues:\n\nERRORS:\n"
            f"{place}: (tasks_app.E015) {error}\n\nNothing was started. Mend the declaration."
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
