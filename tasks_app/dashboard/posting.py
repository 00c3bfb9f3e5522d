"""What pages that post share: reading a form's own fields, and how a refusal is shown."""

from collections.abc import Iterable
from uuid import UUID

from django.utils.translation import gettext as _

from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    RuntimeFault,
    TenantSuspendedError,
)
from tasks_app.templatetags import refusals


def read_uuid(text: str) -> UUID:
    """Return the form's own key; a damaged one is refused."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(_("The form is damaged. Load the page again.")) from None


def read_whole(text: str) -> int | None:
    """Return a whole number, or None when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def http_status(fault: RuntimeFault) -> int:
    """Return the status with which a page shows a refusal."""
    match fault:
        case InvalidInputError():
            return 422
        case NotAllowedError() | TenantSuspendedError():
            return 403
        case _ if fault.code == "approval_self":
            return 403
        case _ if fault.code == "version_required":
            return 428
        case _:
            return 409


def errors_by_field(problems: Iterable[FieldProblem]) -> dict[str, str]:
    """Return what is wrong with each field, by the last part of its pointer."""
    return {p.pointer.rsplit("/", 1)[-1]: refusals.detail(p) for p in problems}
