"""Puts our admin site in the place of Django's default one."""

from django.contrib.admin.apps import AdminConfig


class RuntimeAdminConfig(AdminConfig):
    """Django's admin with `RuntimeAdminSite`."""

    default_site = "tasks_app.admin.site.RuntimeAdminSite"
