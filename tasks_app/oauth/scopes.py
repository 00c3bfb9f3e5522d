"""What a person can hand to a client: scopes are capabilities, told in words on the page."""

from typing import Any

from django.utils.translation import gettext_lazy as _
from oauth2_provider.scopes import BaseScopes
from typing_extensions import override

from tasks_app.admission.tokens import SCOPES, STARTING_SCOPES

WORDS = {
    "tasks:read": _("See tasks, their results and files"),
    "tasks:create": _("Start tasks in your name"),
    "tasks:steer": _("Pause and resume tasks, change them, answer their questions"),
    "tasks:cancel": _("Cancel tasks"),
    "approvals:decide": _("Approve or deny what other people's tasks ask for"),
}


class CapabilityScopes(BaseScopes):  # type: ignore[misc]
    """The same for every client; a client that names none asks for what it takes to begin."""

    @override
    def get_all_scopes(self) -> dict[str, Any]:
        """Return scope → words."""
        return {scope: WORDS[scope] for scope in SCOPES}

    @override
    def get_available_scopes(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return every scope."""
        return list(SCOPES)

    @override
    def get_default_scopes(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return what a client gets that names no scope."""
        return list(STARTING_SCOPES)
