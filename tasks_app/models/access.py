"""Who may act: tenants, members, API keys and agent identities (security section 1)."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.scoped import scoped_manager

ROLES = ("viewer", "submitter", "operator", "approver", "admin", "auditor")
# The claim looks at as many of a tenant's newest slices as its weight.
WEIGHT_MAX = 100


class Tenant(models.Model):
    """An organisation; every other row belongs to exactly one."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=200)
    status = models.CharField(max_length=16, default="active", db_default="active")
    settings = models.JSONField(default=dict)
    # What the installation grants, never the tenant itself: its share of the workers, and how many
    # of its tasks may run at once (null: no limit). See docs/explanation/who-is-next.md.
    weight = models.PositiveSmallIntegerField(default=1, db_default=1)
    max_concurrent_tasks = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=("active", "suspended", "closed")),
                name="tenant_status_known",
            ),
            models.CheckConstraint(
                condition=Q(weight__gte=1, weight__lte=WEIGHT_MAX), name="tenant_weight_range"
            ),
            models.CheckConstraint(
                condition=Q(max_concurrent_tasks__isnull=True) | Q(max_concurrent_tasks__gte=1),
                name="tenant_concurrency_positive",
            ),
        ]
        indexes = [
            # engine.queue_sql.LIMITS: does any tenant have a limit?
            models.Index(
                F("id"), condition=Q(max_concurrent_tasks__isnull=False), name="tenant_limited_idx"
            ),
        ]


class Membership(models.Model):
    """What a user may do in a tenant; roles are additive."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="memberships")
    roles = ArrayField(models.CharField(max_length=16))
    status = models.CharField(max_length=16, default="active", db_default="active")
    granted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    granted_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)

    objects = scoped_manager(read_capability="members:manage")

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_tenant_user_uniq"),
            models.CheckConstraint(
                condition=Q(status__in=("active", "disabled")), name="membership_status_known"
            ),
            models.CheckConstraint(
                condition=Q(roles__contained_by=list(ROLES)), name="membership_roles_known"
            ),
        ]


class AgentIdentity(models.Model):
    """Who a model acts as; never holds a right to decide (S7)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="agents")
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=16, default="active", db_default="active")
    model_allowlist = ArrayField(models.CharField(max_length=100), default=list)
    max_autonomy = models.PositiveSmallIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(read_capability="agents:manage")

    class Meta:
        verbose_name = _("agent identity")
        verbose_name_plural = _("agent identities")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="agent_tenant_name_uniq"),
            models.UniqueConstraint(fields=["tenant", "id"], name="agent_tenant_id_uniq"),
            models.CheckConstraint(
                condition=Q(status__in=("active", "disabled")), name="agent_status_known"
            ),
        ]


class ApiKey(models.Model):
    """A credential for programs. Only the SHA-256 of the secret is stored (S3)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="api_keys")
    owner_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="api_keys"
    )
    # The owning agent; with the tenant it is a composite foreign key in the database (S20).
    owner_agent = models.ForeignKey(
        AgentIdentity, models.PROTECT, null=True, related_name="+", db_constraint=False
    )
    name = models.CharField(max_length=100)
    key_id = models.CharField(max_length=8, unique=True)
    digest = models.BinaryField(max_length=32)
    scopes = ArrayField(models.CharField(max_length=40))
    allowed_cidrs = ArrayField(models.CharField(max_length=43), default=list)
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    revoked_reason = models.CharField(max_length=500, default="", blank=True)
    replaces = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="+", db_constraint=False
    )

    objects = scoped_manager(owner_path="owner_user_id", read_capability="keys:manage")

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="api_key_tenant_id_uniq"),
            models.CheckConstraint(
                condition=Q(owner_user__isnull=False, owner_agent__isnull=True)
                | Q(owner_user__isnull=True, owner_agent__isnull=False),
                name="api_key_one_owner",
            ),
        ]


class ExternalIdentity(models.Model):
    """Whom a subject of another issuer stands for here, and in which tenant (S140)."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(read_capability="members:manage")

    class Meta:
        verbose_name = _("external identity")
        verbose_name_plural = _("external identities")
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="identity_subject_uniq")
        ]
