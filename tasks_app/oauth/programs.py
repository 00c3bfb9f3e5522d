"""The page on which people see the programs they have let in, and end that."""

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from tasks_app.admission.tokens import end_access
from tasks_app.dashboard.access import needs
from tasks_app.domain.principal import Principal
from tasks_app.oauth.scopes import WORDS
from tasks_app.queries.programs import list_programs


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:read")
def programs(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Show the signed-in person's programs, in all their tenants; end what one of them may."""
    person = request.user
    if not isinstance(person, User):
        raise TypeError("only people have programs")
    client_id = request.POST.get("client_id", "")
    if request.method == "POST":
        if client_id and end_access(person, client_id=client_id, reason="by the person"):
            messages.success(request, _("The program has no access any more."))
        return redirect("oauth-programs")
    rows = [
        (program, [WORDS[scope] for scope in program.scopes if scope in WORDS])
        for program in list_programs(person.pk)
    ]
    return render(request, "oauth/programs.html", {"rows": rows})
