"""Tenant-scoped managers: a query that names no tenant cannot be written by accident (S22, S23).

`visible_to(principal)` is for doors, `for_tenant(id)` for code that already acts for one tenant
(engine, admission), `all_tenants(reason)` for the few places that serve the installation; those
files are listed in tests/architecture.
"""

from typing import Any, Self, TypeVar
from uuid import UUID

from django.db import models
from typing_extensions import override

from tasks_app.domain.principal import Principal

M = TypeVar("M", bound=models.Model)


class TenantScopeError(RuntimeError):
    """A query on tenant rows did not say for whom; a fault of our own code."""


class TenantQuerySet(models.QuerySet[M]):
    """A queryset that runs only after its scope was named."""

    # The path from this model to the user who started the task; None when rows have no owner.
    owner_path: str | None = None
    # The capability whose "own only" form narrows what is visible.
    read_capability = "tasks:read"

    _scoped = False

    def _clone(self) -> Self:
        clone = super()._clone()  # type: ignore[misc]
        clone._scoped = self._scoped
        return clone  # type: ignore[no-any-return]

    def _named(self) -> Self:
        clone = self._clone()
        clone._scoped = True
        return clone

    def for_tenant(self, tenant_id: UUID) -> Self:
        """Return the tenant's rows."""
        return self._named().filter(tenant_id=tenant_id)

    def visible_to(self, principal: Principal) -> Self:
        """Return what the principal may read: its tenant's rows, or only its own of them."""
        if not principal.can(self.read_capability):
            return self._named().none()
        rows = self.for_tenant(principal.tenant_id)
        if self.owner_path is None or not principal.sees_only_own(self.read_capability):
            return rows
        return rows.filter(**{self.owner_path: principal.user_id})

    def all_tenants(self, reason: str) -> Self:
        """Return every tenant's rows; the reason is for the reader of the code."""
        if not reason:
            raise TenantScopeError("all_tenants needs a reason")
        return self._named()

    def _require_scope(self) -> None:
        if not self._scoped:
            raise TenantScopeError(
                f"{self.model.__name__}: start from visible_to, for_tenant or all_tenants"
            )

    @override
    def _fetch_all(self) -> None:
        self._require_scope()
        super()._fetch_all()

    @override
    def iterator(self, *args: Any, **kwargs: Any) -> Any:
        self._require_scope()
        return super().iterator(*args, **kwargs)

    @override
    def count(self) -> int:
        self._require_scope()
        return super().count()

    @override
    def exists(self) -> bool:
        self._require_scope()
        return super().exists()

    @override
    def aggregate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._require_scope()
        return super().aggregate(*args, **kwargs)

    @override
    def explain(self, *args: Any, **kwargs: Any) -> str:
        self._require_scope()
        return super().explain(*args, **kwargs)

    @override
    def update(self, **kwargs: Any) -> int:
        self._require_scope()
        return super().update(**kwargs)

    @override
    def delete(self) -> tuple[int, dict[str, int]]:
        self._require_scope()
        return super().delete()

    @override
    def bulk_create(self, objs: Any, *args: Any, **kwargs: Any) -> list[M]:
        rows = list(objs)
        self._require_scope()
        return super().bulk_create(rows, *args, **kwargs)


def scoped_manager(
    owner_path: str | None = None, read_capability: str = "tasks:read"
) -> models.Manager[Any]:
    """Return a manager whose querysets refuse to run before their scope is named."""
    queryset_class = type(
        "ScopedQuerySet",
        (TenantQuerySet,),
        {"owner_path": owner_path, "read_capability": read_capability},
    )
    return ScopedManager.from_queryset(queryset_class)()


class ScopedManager(models.Manager[M]):
    """Creating a row names its tenant in the row itself, so `create` needs no scope."""

    use_in_migrations = False

    @override
    def create(self, **kwargs: Any) -> M:
        if kwargs.get("tenant_id") is None and kwargs.get("tenant") is None:
            raise TenantScopeError(f"{self.model.__name__}: create needs a tenant")
        return super().create(**kwargs)
