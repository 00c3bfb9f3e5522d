"""Effect: one act on the outside world, one row for each effect key."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ledger_app.domain.effects import SETTLED, EffectKind, EffectState

_STATES = [state.value for state in EffectState]
_SETTLED = sorted(state.value for state in SETTLED)
_OPEN = sorted(set(_STATES) - set(_SETTLED))


class Effect(models.Model):
    """What was meant to happen outside, whether it did, and under which fence.

    `key` is sent to the other side as well. A trigger refuses every edge that is not in
    `domain.effects.EDGES`, a fence below the stored one, and a change of what the act is.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    task_id = models.UUIDField()
    step_key = models.TextField()
    key = models.TextField()
    kind = models.TextField()
    tool = models.TextField()
    target = models.TextField(blank=True, default="")
    args_sha256 = models.TextField()
    state = models.TextField()
    attempts = models.PositiveIntegerField()
    fence = models.BigIntegerField()
    approval_id = models.UUIDField(null=True, blank=True)
    request = models.JSONField()
    response = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    begun_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        """Constraints, and indexes each with the query it serves."""

        verbose_name = _("effect")
        verbose_name_plural = _("effects")
        constraints: ClassVar = [
            # services.effects: one row for each act, found by its key.
            models.UniqueConstraint(fields=["tenant_id", "key"], name="effect_tenant_key_uniq"),
            models.CheckConstraint(
                condition=models.Q(state__in=_STATES), name="effect_state_known"
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=[kind.value for kind in EffectKind]),
                name="effect_kind_known",
            ),
            models.CheckConstraint(
                condition=models.Q(args_sha256__regex="^[0-9a-f]{64}$"),
                name="effect_args_sha256_form",
            ),
            models.CheckConstraint(
                condition=models.Q(fence__gte=0), name="effect_fence_not_negative"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=[EffectState.PLANNED.value, EffectState.FAILED.value])
                | models.Q(begun_at__isnull=False),
                name="effect_begun_at_set",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=_OPEN, settled_at__isnull=True)
                | models.Q(state__in=_SETTLED, settled_at__isnull=False),
                name="effect_settled_at_set",
            ),
        ]
        indexes: ClassVar = [
            # queries.list_effects and the summaries: the effects of one task in order.
            models.Index(fields=["task_id", "id"], name="effect_task_idx"),
            # queries.list_open_effects: what is begun or in doubt in one tenant, oldest first.
            models.Index(
                fields=["tenant_id", "id"],
                name="effect_open_idx",
                condition=models.Q(state__in=[EffectState.BEGUN.value, EffectState.IN_DOUBT.value]),
            ),
        ]
