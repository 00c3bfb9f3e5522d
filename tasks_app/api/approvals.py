"""Approvals: what waits, what exactly it is, and one person's decision."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.admission.approvals import decide_approval
from tasks_app.api.base import RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import DecisionInput
from tasks_app.api.lists import ApprovalListQuery
from tasks_app.api.outputs import ApprovalOut, ApprovalPage
from tasks_app.queries.approvals import get_approval, list_approvals

_DECISION_CODES = (
    "approval_self",
    "approval_changed",
    "approval_decided",
    "approval_digest_required",
    "version_required",
)


class ApprovalListView(RuntimeView):
    """The inbox."""

    capabilities: ClassVar = {"GET": "approvals:read"}
    query_models: ClassVar = {"GET": ApprovalListQuery}

    @documented(
        "listApprovals", "List approvals", capability="approvals:read", query=ApprovalListQuery,
        returns=ApprovalPage,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return approvals, the pending ones unless `status` says otherwise."""
        return self.page(ApprovalOut, list_approvals)


class ApprovalObjectView(RuntimeView):
    """A route below one approval."""

    @override
    def look_up(self) -> None:
        """Refuse an approval that is not visible."""
        get_approval(self.principal, self.kwargs["approval_id"])


class ApprovalView(ApprovalObjectView):
    """One approval."""

    capabilities: ClassVar = {"GET": "approvals:read"}

    @documented("getApproval", "Read an approval", capability="approvals:read",
                returns=ApprovalOut)  # fmt: skip
    def get(self, request: Request, approval_id: UUID) -> Response:
        """Return the act with its arguments, its digest and the decisions so far."""
        return answer(ApprovalOut.of(get_approval(self.principal, approval_id)))


class DecisionView(ApprovalObjectView):
    """The decision on one approval."""

    capabilities: ClassVar = {"POST": "approvals:decide"}

    @documented(
        "decideApproval",
        "Approve or deny",
        capability="approvals:decide",
        body=DecisionInput,
        returns=ApprovalOut,
        codes=_DECISION_CODES,
        example={
            "decision": "approve",
            "argsSha256": "0f4c…64 hexadecimal digits…",
            "expectedVersion": 1,
            "reason": "Read the report; the numbers are right.",
        },
        keeps=True,
    )
    def post(self, request: Request, approval_id: UUID) -> Response:
        """Record the decision and return the approval as it stands then."""
        body = self.body(DecisionInput)

        def act() -> Response:
            decide_approval(
                self.principal,
                approval_id=approval_id,
                decision=body.decision,
                args_sha256=body.args_sha256 or "",
                expected_version=body.expected_version,
                reason=body.reason,
                source="rest",
                request_id=self.request_id,
            )
            return answer(ApprovalOut.of(get_approval(self.principal, approval_id)))

        return self.once(act)
