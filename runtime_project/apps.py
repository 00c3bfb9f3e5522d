"""Puts our admin site in the place of Django's default one."""

from importlib import import_module

from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.apps import AdminConfig
from typing_extensions import override


class RuntimeAdminConfig(AdminConfig):
    """Django's admin with `RuntimeAdminSite` and the pages of our models."""

    default_site = "tasks_app.admin.site.RuntimeAdminSite"

    @override
    def ready(self) -> None:
        super().ready()
        import_module("tasks_app.admin.pages")
        if apps.is_installed("oauth2_provider"):
            # Its pages know no tenant and would show everybody's tokens; see `manage.py oauth`.
            models = apps.get_app_config("oauth2_provider").get_models()
            site.unregister([model for model in models if site.is_registered(model)])
