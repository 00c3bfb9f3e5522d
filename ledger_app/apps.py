"""Django's entry to the ledger."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LedgerAppConfig(AppConfig):
    """Names the application; there is nothing to start."""

    name = "ledger_app"
    verbose_name = _("Ledger")
    default_auto_field = "django.db.models.BigAutoField"
