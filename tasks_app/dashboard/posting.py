"""What pages that post share: reading a form's own fields, and how a refusal is shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.http import QueryDict
from django.utils.translation import gettext as _

from tasks_app.domain.errors import (
    ConfigurationError,
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    RuntimeFault,
    TenantSuspendedError,
    VersionConflictError,
)
from tasks_app.domain.repairs import RepairVerb
from tasks_app.queries.snapshot import TaskSnapshot
from tasks_app.templatetags import refusals, words
from tasks_app.templatetags.held import verb_label


@dataclass(frozen=True, slots=True)
class Conflict:
    """What moved while the person was writing."""

    old: str
    new: int
    word: str
    moved: str


def conflict_of(posted: QueryDict, snap: TaskSnapshot, fault: VersionConflictError) -> Conflict:
    """Return what a version conflict says to the person."""
    who, what = fault.fields.get("changedBy"), str(fault.fields.get("change", ""))
    known = what in frozenset(RepairVerb)
    change = verb_label(what) if known else words.COMMANDS.get(what, what)
    return Conflict(
        old=posted.get("expected_version", ""),
        new=snap.state_version,
        word=str(words.look("task", snap.status).word),
        moved=f"{who}: {change}. {fault.fields.get('changeReason', '')}" if who else "",
    )


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
        case ConfigurationError():
            return 500
        case _:
            return 409


def errors_by_field(problems: Iterable[FieldProblem]) -> dict[str, str]:
    """Return what is wrong with each field, by the last part of its pointer."""
    return {p.pointer.rsplit("/", 1)[-1]: refusals.detail(p) for p in problems}
