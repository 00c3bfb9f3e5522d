"""`manage.py mcp_stdio --user NAME`: the MCP door on standard input and output, for one person."""

import asyncio
import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from mcp.server.stdio import stdio_server
from typing_extensions import override

from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.mcp_server import credentials, server
from tasks_app.mcp_server.caller import SCOPE_KEY


class Command(BaseCommand):
    """Serves until its input ends; nothing but the protocol is written to its output."""

    help = "Serve MCP on standard input and output, as one person."
    requires_system_checks = []

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="login name of the person who calls")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Serve. Raises: CommandError when there is no such member of a tenant."""
        logging.getLogger().handlers = [logging.StreamHandler(sys.stderr)]
        try:
            caller = credentials.caller_for(options["user"])
        except UnauthenticatedError:
            raise CommandError(f"{options['user']} is no active member of a tenant.") from None
        asyncio.run(_serve({SCOPE_KEY: caller}))


async def _serve(state: dict[str, Any]) -> None:
    served = server.build(state)
    async with stdio_server() as (reading, writing):
        await served.run(reading, writing, served.create_initialization_options())
