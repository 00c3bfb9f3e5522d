"""Migrates the database and makes the demo's accounts in one process; prints the accounts as JSON.

Run by the stack as `python -m runtime_project.local.prepare CREDENTIALS_FILE`. One process instead
of two management commands, because loading the project takes longer than the work itself.
"""

import sys

import django
from django.core.management import call_command


def main() -> None:
    """Bring the schema up to date, then seed; only the accounts go to standard output."""
    django.setup()
    call_command("migrate", interactive=False, stdout=sys.stderr)
    call_command("seed_demo", "--json", "--credentials", sys.argv[1])


if __name__ == "__main__":
    main()
