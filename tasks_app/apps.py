"""Application configuration: discovers workflows and checks the set-up."""

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError


class TasksAppConfig(AppConfig):
    """Loads `durable.py` of every installed application, as the admin loads `admin.py`."""

    name = "tasks_app"
    label = "tasks_app"
    verbose_name = _("Tasks")

    @override
    def ready(self) -> None:
        # Imported late: django-eventstream reads the settings when it is imported.
        from tasks_app.events import checks, listening  # noqa: F401 - checks register themselves
        from tasks_app.workflows import checks as of_workflows  # noqa: F401 - likewise
        from tasks_app.workflows import declarations

        listening.install()
        if apps.is_installed("oauth2_provider"):
            from tasks_app.oauth import privileges

            privileges.install()
        try:
            autodiscover_modules("durable")
        except ConfigurationError as error:
            raise declarations.blame(error) from error
