"""Read-only admin pages, scoped to the staff user's tenant, and the panel through which they act.

Who sees a row is decided by the tenant membership of the staff user, as on every other page. A
superuser without a membership sees nothing of a tenant. Django's own permissions are not asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admin.labels import name_fields
from tasks_app.admission.session import find_principal
from tasks_app.domain.errors import RuntimeFault, VersionConflictError
from tasks_app.domain.principal import Principal
from tasks_app.templatetags import refusals, words
from tasks_app.templatetags.dashboard import pill, pretty

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    # Django's classes take no type argument at run time.
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

# Hands the values of a posted form to admission: who acts, on what, the values.
Act = Callable[[Principal, UUID, dict[str, str]], None]
# A field of a page that is not a column of the model.
Column = Callable[[Any, Any], SafeString | str]


@dataclass(frozen=True, slots=True)
class Panel:
    """A read-only table below the fields of a page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class PanelAct:
    """One button of the act panel; `denied` names the capability that is missing."""

    value: str
    label: str
    danger: bool = False
    denied: str = ""
    input: str = ""


@dataclass(frozen=True, slots=True)
class ActPanel:
    """The form above the fields: hidden values that bind it, a reason, buttons."""

    url: str
    hidden: dict[str, object]
    acts: Sequence[PanelAct]
    button: str
    note: str = ""
    kept: dict[str, str] = field(default_factory=dict)


class ReadOnlyAdmin(ModelAdmin):
    """A model's pages without add, change and delete; rows of the active tenant only."""

    capability = "tasks:read"
    actions: Any = None
    list_per_page = 50
    show_full_result_count = False
    change_form_template = "admin/rt/change_form.html"
    list_select_related: ClassVar[Any] = False

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        name_fields(model)
        super().__init__(model, admin_site)

    # --- who sees what --------------------------------------------------------------------
    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return what the staff user's membership shows; nothing without one."""
        principal = find_principal(request)
        if principal is None:
            return no_rows(self.model)
        rows = self.visible_rows(principal)
        ordering = self.get_ordering(request)
        return rows.order_by(*ordering) if ordering else rows

    def visible_rows(self, principal: Principal) -> QuerySet[Any]:
        """Return the rows that the principal may see."""
        manager: Any = self.model._default_manager  # noqa: SLF001 - Django's name
        return cast("QuerySet[Any]", manager.visible_to(principal))

    @override
    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    @override
    def has_view_permission(self, request: HttpRequest, obj: Any | None = None) -> bool:
        principal = find_principal(request)
        return principal is not None and principal.can(self.capability)

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: Any | None = None) -> bool:
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: Any | None = None) -> bool:
        return False

    # --- what a page shows ----------------------------------------------------------------
    def panels(self, principal: Principal, obj: Any) -> list[Panel]:
        """Return the tables below the fields."""
        return []

    def act_panel(self, principal: Principal, obj: Any) -> ActPanel | None:
        """Return the form above the fields; None when nothing can be done."""
        return None

    def heading(self, obj: Any) -> str:
        """Return what the page is about, in words."""
        return f"{self.opts.verbose_name} {obj.pk}"

    @override
    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any | None = None,
    ) -> HttpResponse:
        principal = find_principal(request)
        if obj is not None and principal is not None:
            context |= {
                "title": self.heading(obj),
                "subtitle": None,
                "rt_panels": self.panels(principal, obj),
                "rt_act": self.act_panel(principal, obj),
                "show_save": False,
                "show_save_and_continue": False,
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    # --- acting ---------------------------------------------------------------------------
    def acted(self, request: HttpRequest, pk: UUID, act: Act, done: str) -> HttpResponse:
        """Hand to admission what the act panel posted, and say what became of it."""
        obj = self.get_object(request, str(pk))
        principal = find_principal(request)
        if obj is None or principal is None:
            raise Http404
        posted = request.POST.dict()
        try:
            act(principal, obj.pk, posted)
        except RuntimeFault as fault:
            messages.error(request, refusal_text(fault, posted.get("expected_version", "")))
        else:
            self.told(request, obj, done)
        return self.back(obj)

    def told(self, request: HttpRequest, obj: Any, text: str) -> None:
        """Say that an act was accepted, and put it into the row's History."""
        messages.success(request, text)
        LogEntry.objects.create(
            user=cast("User", request.user),
            content_type_id=ContentType.objects.get_for_model(self.model).pk,
            object_id=str(obj.pk),
            object_repr=self.heading(obj)[:200],
            action_flag=CHANGE,
            change_message=text,
        )

    def back(self, obj: Any) -> HttpResponseRedirect:
        """Lead to the row's page."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(name, args=[obj.pk]))


def no_rows(model: Any) -> QuerySet[Any]:
    """Return the empty list of a model's rows."""
    return cast("QuerySet[Any]", model._base_manager.none())  # noqa: SLF001 - Django's name


def refusal_text(fault: RuntimeFault, sent_version: object = "") -> str:
    """Return what the admin says about a refusal: always that nothing changed."""
    if isinstance(fault, VersionConflictError):
        text = _("Nothing was changed: you acted on version %(old)s, the task is at %(new)s.")
        return text % {"old": sent_version, "new": fault.fields.get("currentVersion", "?")}
    details = "; ".join(refusals.detail(p) for p in getattr(fault, "errors", ()))
    return _("Nothing was changed: %(why)s") % {"why": details or refusals.say(fault)}


def read_whole(text: str) -> int | None:
    """Return a whole number, or None when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def link(model: str, pk: object, text: object) -> SafeString:
    """Return a link to another row's page."""
    return format_html('<a href="{}">{}</a>', reverse(f"admin:{model}_change", args=[pk]), text)


def json_block(value: object) -> SafeString:
    """Return JSON for reading in a page."""
    return format_html('<pre class="rt-json" dir="auto">{}</pre>', pretty(value))


def word_filter(word: Callable[[str], object]) -> type[admin.FieldListFilter]:
    """Return a filter that offers a column's values by their words."""

    class WordFilter(admin.AllValuesFieldListFilter):
        @override
        def choices(self, changelist: Any) -> Iterator[Any]:
            for choice in super().choices(changelist):
                value = choice["display"]
                shown = word(value) if isinstance(value, str) and value in self.values else value
                yield {**choice, "display": shown}

        @property
        def values(self) -> set[str]:
            return {str(value) for value in self.lookup_choices}

    return WordFilter


def state_filter(kind: str) -> type[admin.FieldListFilter]:
    """Return a filter that offers states by their words."""
    return word_filter(lambda value: words.look(kind, value).word)


def code_filter(kind: str) -> type[admin.FieldListFilter]:
    """Return a filter that offers codes by their words."""
    return word_filter(lambda value: words.code(kind, value))


def code_column(kind: str, attribute: str, description: "_StrPromise") -> Column:
    """Return a column that shows a code as its word."""

    @admin.display(description=description, ordering=attribute)
    def shown(_pages: ReadOnlyAdmin, obj: Any) -> str:
        return words.code(kind, getattr(obj, attribute))

    return shown


def pill_column(kind: str, attribute: str = "status") -> Column:
    """Return a column that shows a state as a pill."""

    @admin.display(description=gettext_lazy("state"), ordering=attribute)
    def shown(_pages: ReadOnlyAdmin, obj: Any) -> SafeString:
        return pill(kind, getattr(obj, attribute))

    return shown


def json_column(attribute: str, description: "_StrPromise") -> Column:
    """Return a field that shows stored JSON; a dash where there is none."""

    @admin.display(description=description)
    def shown(_pages: ReadOnlyAdmin, obj: Any) -> SafeString:
        value = getattr(obj, attribute)
        return SafeString("–") if value is None else json_block(value)

    return shown


def yes_column(attribute: str, description: "_StrPromise") -> Column:
    """Return a column that says yes or no."""

    @admin.display(description=description, ordering=attribute)
    def shown(_pages: ReadOnlyAdmin, obj: Any) -> str:
        return _("yes") if getattr(obj, attribute) else _("no")

    return shown


def list_column(attribute: str, description: "_StrPromise", kind: str = "") -> Column:
    """Return a column that shows the texts of a list, or their words; a dash without any."""

    @admin.display(description=description)
    def shown(_pages: ReadOnlyAdmin, obj: Any) -> str:
        texts = getattr(obj, attribute)
        return ", ".join(words.code(kind, text) if kind else text for text in texts) or "–"

    return shown
