"""The ASGI entry: pages, REST and event streams from one application."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")

application = get_asgi_application()
