"""Puts our admin site in the place of Django's default one."""

from importlib import import_module

from django.contrib.admin.apps import AdminConfig
from typing_extensions import override


class RuntimeAdminConfig(AdminConfig):
    """Django's admin with `RuntimeAdminSite` and the pages of our models."""

    default_site = "tasks_app.admin.site.RuntimeAdminSite"

    @override
    def ready(self) -> None:
        super().ready()
        import_module("tasks_app.admin.pages")
