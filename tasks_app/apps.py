"""Application configuration: discovers workflows and checks the set-up."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _
from typing_extensions import override


class TasksAppConfig(AppConfig):
    """Loads `durable.py` of every installed application, as the admin loads `admin.py`."""

    name = "tasks_app"
    label = "tasks_app"
    verbose_name = _("Tasks")

    @override
    def ready(self) -> None:
        # Imported late: django-eventstream reads the settings when it is imported.
        from tasks_app.events import checks, listening  # noqa: F401 - checks register themselves
        from tasks_app.workflows import checks as declarations  # noqa: F401 - likewise

        listening.install()
        autodiscover_modules("durable")
