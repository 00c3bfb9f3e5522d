"""The admin site: its front page counts what needs a person."""

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admission.session import find_principal
from tasks_app.queries.needs import count_needs


class RuntimeAdminSite(AdminSite):
    """Django's admin without the side bar, with the counts on top."""

    site_header = gettext_lazy("Perdure admin")
    site_title = "Perdure"
    index_title = gettext_lazy("What needs a person")
    index_template = "admin/rt/index.html"
    enable_nav_sidebar = False

    @override
    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        needs = _needs(request)
        return super().index(request, {**(extra_context or {}), "rt_needs": needs})


def _needs(request: HttpRequest) -> list[dict[str, object]]:
    """Return counts, each with the list it counts; none that the viewer may not see."""
    principal = find_principal(request)
    if principal is None:
        return []
    counts = count_needs(principal)
    tasks = reverse("admin:tasks_app_task_changelist")
    approvals = reverse("admin:tasks_app_approval_changelist")
    effects = reverse("admin:ledger_app_effect_changelist")
    needs: list[dict[str, object]] = [
        {
            "label": _("approvals waiting"),
            "count": counts.approvals,
            "url": f"{approvals}?status__exact=pending",
        },
        {
            "label": _("dead letters"),
            "count": counts.dead_letters,
            "url": f"{tasks}?status=dead_lettered",
        },
        {
            "label": _("effects in doubt"),
            "count": counts.effects_in_doubt,
            "url": f"{effects}?state__exact=in_doubt",
        },
        {
            "label": _("expired leases"),
            "count": counts.expired_leases,
            "url": f"{tasks}?status=working",
        },
    ]
    return [need for need in needs if need["count"] is not None]
