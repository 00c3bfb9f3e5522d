"""What every page shows around its own content: who, which tenant, what waits, the look."""

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from tasks_app.admission import principal as principals
from tasks_app.admission.session import find_principal
from tasks_app.domain.principal import Principal
from tasks_app.queries.approvals import count_waiting
from tasks_app.queries.holds import count_held

THEME_COOKIE = "rt_theme"
_NEXT_THEME = {"": "light", "light": "dark", "dark": "auto"}


@dataclass(frozen=True, slots=True)
class Chrome:
    """The frame of a page."""

    principal: Principal | None
    tenants: tuple[principals.TenantChoice, ...]
    waiting: int
    held: int
    can_read_approvals: bool
    section: str
    theme: str
    demo: bool

    @property
    def next_theme(self) -> str:
        """Return the theme that the button switches to."""
        return _NEXT_THEME[self.theme]

    @property
    def theme_word(self) -> str:
        """Return the name of the present theme."""
        return {"": _("automatic"), "light": _("light"), "dark": _("dark")}[self.theme]

    @property
    def other_languages(self) -> list[tuple[str, str]]:
        """Return the languages to change to, each by the name that its readers use."""
        return [item for item in settings.LANGUAGES if item[0] != get_language()]


def page(request: HttpRequest) -> dict[str, object]:
    """Add the frame to a template's context; nothing is read until a template asks."""
    return {"chrome": SimpleLazyObject(lambda: _chrome(request))}


def _chrome(request: HttpRequest) -> Chrome:
    principal = find_principal(request)
    user = request.user if principal else None
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return Chrome(
        principal=principal,
        tenants=tuple(principals.list_tenants(user)) if user and user.is_authenticated else (),
        waiting=count_waiting(principal) if principal else 0,
        held=count_held(principal) if principal else 0,
        can_read_approvals=principal is not None and principal.can("approvals:read"),
        section=_section(request),
        theme=theme if theme in {"light", "dark"} else "",
        demo=settings.PROFILE == "demo",
    )


def _section(request: HttpRequest) -> str:
    sections = {"/approvals/": "approvals", "/dead-letters/": "held"}
    found = (name for path, name in sections.items() if request.path.startswith(path))
    return next(found, "tasks")
