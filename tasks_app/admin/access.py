"""Admin pages of who may act: tenant, members, API keys, agents. Secrets are never shown."""

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy
from typing_extensions import override

from tasks_app.admin.base import (
    ReadOnlyAdmin,
    code_column,
    code_filter,
    json_column,
    list_column,
)
from tasks_app.domain.principal import Principal
from tasks_app.models import AgentIdentity, ApiKey, Membership, Tenant


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    """The active tenant, and no other."""

    capability = "members:manage"
    list_display = ("name", "slug", "standing", "created_at")
    ordering = ("name",)
    fields = readonly_fields = (
        "id", "name", "slug", "standing", "weight", "max_concurrent_tasks", "created_at",
        "settings_shown",
    )  # fmt: skip

    @override
    def visible_rows(self, principal: Principal) -> QuerySet[Tenant]:
        if not principal.can(self.capability):
            return Tenant.objects.none()
        return Tenant.objects.filter(pk=principal.tenant_id)

    @override
    def heading(self, obj: Tenant) -> str:
        return obj.name

    standing = code_column("member", "status", gettext_lazy("state"))
    settings_shown = json_column("settings", gettext_lazy("settings"))


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin):
    """Who holds which roles."""

    capability = "members:manage"
    list_display = ("member", "roles_shown", "standing", "granter", "granted_at", "expires_at")
    list_select_related = ("user", "granted_by")
    list_filter = (("status", code_filter("member")),)
    search_fields = ("user__username", "user__email")
    ordering = ("user__username",)
    fields = readonly_fields = (
        "member", "roles_shown", "standing", "granter", "granted_at", "expires_at",
    )  # fmt: skip

    @override
    def heading(self, obj: Membership) -> str:
        return obj.user.get_username()

    @admin.display(description=gettext_lazy("user"), ordering="user__username")
    def member(self, obj: Membership) -> str:
        return obj.user.get_username()

    @admin.display(description=gettext_lazy("granted by"))
    def granter(self, obj: Membership) -> str:
        return obj.granted_by.get_username() if obj.granted_by else "–"

    standing = code_column("member", "status", gettext_lazy("state"))
    roles_shown = list_column("roles", gettext_lazy("roles"), "role")


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys without their secret or its digest."""

    capability = "keys:manage"
    list_display = ("name", "key_id", "owner", "scopes_shown", "last_used_at", "expires_at")
    list_select_related = ("owner_user", "owner_agent")
    search_fields = ("name", "key_id")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "id", "name", "key_id", "owner", "scopes_shown", "networks_shown", "created_at",
        "last_used_at", "expires_at", "revoked_at", "revoked_reason",
    )  # fmt: skip

    @override
    def heading(self, obj: ApiKey) -> str:
        return obj.name

    @admin.display(description=gettext_lazy("owner"))
    def owner(self, obj: ApiKey) -> str:
        if obj.owner_user is not None:
            return obj.owner_user.get_username()
        return obj.owner_agent.name if obj.owner_agent is not None else "–"

    scopes_shown = list_column("scopes", gettext_lazy("scopes"))
    networks_shown = list_column("allowed_cidrs", gettext_lazy("networks"))


@admin.register(AgentIdentity)
class AgentIdentityAdmin(ReadOnlyAdmin):
    """Who models act as."""

    capability = "agents:manage"
    list_display = ("name", "version", "standing", "models_shown", "max_autonomy", "created_at")
    list_filter = (("status", code_filter("member")),)
    search_fields = ("name",)
    ordering = ("name",)
    fields = readonly_fields = (
        "id", "name", "version", "standing", "models_shown", "max_autonomy", "created_at",
    )  # fmt: skip

    @override
    def heading(self, obj: AgentIdentity) -> str:
        return obj.name

    standing = code_column("member", "status", gettext_lazy("state"))
    models_shown = list_column("model_allowlist", gettext_lazy("models"))
