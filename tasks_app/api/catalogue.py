"""What can be started here, who the caller is, and the answer for addresses that do not exist."""

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.base import PUBLIC, SIGNED_IN, RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.outputs import CapabilityOut, WhoAmI, WorkflowList, WorkflowOut
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.policy.capabilities import ALL, CAPABILITIES, OWN
from tasks_app.workflows.registry import list_workflows


class WorkflowListView(RuntimeView):
    """The enabled workflows."""

    capabilities: ClassVar = {"GET": SIGNED_IN}

    @documented("listWorkflows", "List workflows", capability=SIGNED_IN, returns=WorkflowList)
    def get(self, request: Request) -> Response:
        """Return each workflow with the schema of its goal."""
        items = [
            WorkflowOut(
                name=found.name,
                version=found.version,
                title=str(found.title),
                description=str(found.description),
                acts=[str(act) for act in found.acts],
                effects=list(found.effects),
                approve_before=list(found.approve_before),
                goal_schema=found.schema,
            )
            for found in list_workflows()
        ]
        return answer(WorkflowList(items=items))


class WhoAmIView(RuntimeView):
    """The caller."""

    capabilities: ClassVar = {"GET": SIGNED_IN}

    @documented("whoAmI", "Who am I?", capability=SIGNED_IN, returns=WhoAmI)
    def get(self, request: Request) -> Response:
        """Return who the credential stands for and what it may do now."""
        return answer(_who(self.principal))


class NothingHereView(RuntimeView):
    """Every other address under /runtime: JSON, not a page."""

    capabilities: ClassVar = {"GET": PUBLIC, "POST": PUBLIC}
    authentication_classes = []
    permission_classes = []
    schema = None

    def get(self, request: Request, path: str) -> Response:
        """Say that there is nothing."""
        raise NotFoundError("Not found.")

    post = get


def _who(principal: Principal) -> WhoAmI:
    return WhoAmI.of(
        principal,
        name=principal.display,
        capabilities=[
            CapabilityOut(
                name=name,
                reach=OWN if principal.sees_only_own(name) else ALL,
                description=CAPABILITIES[name],
            )
            for name in sorted(principal.capabilities)
        ],
    )
