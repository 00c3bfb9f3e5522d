"""The ASGI entry: pages, REST and event streams from one application."""

import os

import django
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from typing_extensions import override

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")


class OneThreadHandler(ASGIHandler):
    """Runs middleware and view of a request in one thread; only streams are sent by the loop.

    Django's own handler goes to a thread and back for every middleware that is not asynchronous,
    which costs several times what the request itself does.
    """

    @override
    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain as for a synchronous server."""
        super().load_middleware(is_async=False)

    @override
    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Go to the request's thread once; an asynchronous view comes back to this loop."""
        return await sync_to_async(self.get_response)(request)


django.setup(set_prefix=False)
application = OneThreadHandler()
