"""Links between subjects of another issuer and members: made and removed by the installation."""

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError

from ledger_app.services import audit
from tasks_app.admission.replays import own_transaction
from tasks_app.domain.errors import InvalidInputError, NotFoundError
from tasks_app.models import ExternalIdentity, Membership, Tenant


def link_identity(*, tenant: Tenant, user: User, subject: str) -> None:
    """Let tokens of a subject of the configured issuer act for a member.

    Transaction: its own. The audit entry is its last statement.
    Raises: InvalidInputError for no member, no issuer, or a subject that is linked already.
    """
    if not settings.MCP_JWT_ISSUER:
        raise InvalidInputError("Set MCP_JWT_ISSUER first.")
    members = Membership.objects.for_tenant(tenant.id)
    if not members.filter(user=user, status="active").exists():
        raise InvalidInputError("The person is no active member of the tenant.")
    try:
        with own_transaction():
            ExternalIdentity.objects.create(
                tenant=tenant, user=user, issuer=settings.MCP_JWT_ISSUER, subject=subject
            )
            _record(tenant, "identity.link", user, subject)
    except IntegrityError:
        raise InvalidInputError("The subject is linked already.") from None


def unlink_identity(*, tenant: Tenant, subject: str) -> None:
    """End what `link_identity` began; tokens of the subject are refused from now on.

    Transaction: its own. Locks: the link. The audit entry is its last statement.
    Raises: NotFoundError.
    """
    rows = ExternalIdentity.objects.for_tenant(tenant.id)
    with own_transaction():
        linked = rows.filter(issuer=settings.MCP_JWT_ISSUER, subject=subject)
        found = linked.select_for_update(of=("self",)).select_related("user").first()
        if found is None:
            raise NotFoundError("There is no such link.")
        found.delete()
        _record(tenant, "identity.unlink", found.user, subject)


def _record(tenant: Tenant, action: str, user: User, subject: str) -> None:
    audit.append(
        stream=f"tenant:{tenant.id}",
        tenant_id=tenant.id,
        actor="system:command",
        action=action,
        target=f"user:{user.pk}",
        details={"issuer": settings.MCP_JWT_ISSUER, "subject": subject},
    )
