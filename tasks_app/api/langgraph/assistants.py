"""Assistants: the enabled workflows under the name that clients know them by."""

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app import conf
from tasks_app.api.base import PUBLIC, SIGNED_IN
from tasks_app.api.langgraph.base import DoorView
from tasks_app.api.langgraph.inputs import AssistantSearch, GraphQuery
from tasks_app.api.langgraph.render import Json
from tasks_app.api.langgraph.threads import selected
from tasks_app.domain.conversation import EMPTY
from tasks_app.domain.errors import NotFoundError, UnknownWorkflowError
from tasks_app.domain.run_bodies import CONTEXT_KEYS, STREAM_MODES
from tasks_app.domain.runs import Strategy
from tasks_app.workflows.definition import WorkflowInfo
from tasks_app.workflows.registry import get_workflow, list_workflows

# Workflows are code: they have no time of their own, and clients want one.
_SINCE = "1970-01-01T00:00:00Z"
_STATE_SCHEMA = {
    "type": "object",
    "properties": {
        "messages": {"type": "array"},
        "result": {},
        "artifacts": {"type": "array"},
    },
    "required": sorted(EMPTY),
}


class AssistantSearchView(DoorView):
    """The enabled workflows."""

    capabilities: ClassVar = {"POST": SIGNED_IN}

    def post(self, request: Request) -> Response:
        """Return assistants by name."""
        body = self.body(AssistantSearch)
        found = _matching(body)[body.offset : body.offset + body.limit]
        return Response([selected(_shown(one), body.select) for one in found])


class AssistantCountView(DoorView):
    """How many workflows are enabled."""

    capabilities: ClassVar = {"POST": SIGNED_IN}

    def post(self, request: Request) -> Response:
        """Return the number."""
        return Response(len(_matching(self.body(AssistantSearch))))


class AssistantView(DoorView):
    """One workflow."""

    capabilities: ClassVar = {"GET": SIGNED_IN}

    def get(self, request: Request, assistant_id: str) -> Response:
        """Return the assistant."""
        return Response(_shown(_found(assistant_id)))


class GraphView(DoorView):
    """The declared steps of a workflow."""

    capabilities: ClassVar = {"GET": SIGNED_IN}
    query_models: ClassVar = {"GET": GraphQuery}

    def get(self, request: Request, assistant_id: str) -> Response:
        """Return the steps; which of them a run takes, and in which order, is decided by its plan."""
        info = _found(assistant_id)
        steps = [step.name for step in info.definition.declared_steps()] or [info.name]
        nodes = ["__start__", *steps, "__end__"]
        edges = [
            *({"source": "__start__", "target": step, "conditional": True} for step in steps),
            *({"source": step, "target": "__end__", "conditional": True} for step in steps),
        ]
        return Response(
            {"nodes": [{"id": name, "type": "runnable"} for name in nodes], "edges": edges}
        )


class SchemasView(DoorView):
    """The shapes of a workflow's input and state."""

    capabilities: ClassVar = {"GET": SIGNED_IN}

    def get(self, request: Request, assistant_id: str) -> Response:
        """Return JSON schemas."""
        info = _found(assistant_id)
        context: Json = {
            "type": "object",
            "properties": {name: {} for name in sorted(CONTEXT_KEYS)},
        }
        return Response(
            {
                "graph_id": info.name,
                "input_schema": info.schema,
                "output_schema": _STATE_SCHEMA,
                "state_schema": _STATE_SCHEMA,
                "config_schema": {"type": "object", "properties": {}},
                "context_schema": context,
            }
        )


class OkView(DoorView):
    """Whether the door answers."""

    capabilities: ClassVar = {"GET": PUBLIC}
    authentication_classes = []
    permission_classes = []

    def get(self, request: Request) -> Response:
        """Say so."""
        return Response({"ok": True})


class InfoView(DoorView):
    """What the door takes."""

    capabilities: ClassVar = {"GET": SIGNED_IN}

    def get(self, request: Request) -> Response:
        """Return the options of runs."""
        return Response(
            {
                "name": "perdure",
                "stream_modes": list(STREAM_MODES),
                "multitask_strategies": [strategy.value for strategy in Strategy],
                "default_assistant": conf.runtime().default_assistant,
                "models": list(conf.runtime().models),
            }
        )


def _found(name: str) -> WorkflowInfo:
    try:
        return get_workflow(name)
    except UnknownWorkflowError as error:
        raise NotFoundError("Not found.") from error


def _matching(body: AssistantSearch) -> list[WorkflowInfo]:
    def fits(info: WorkflowInfo) -> bool:
        named = body.name is None or body.name.lower() in str(info.title).lower()
        return named and body.graph_id in (None, info.name) and not body.metadata

    return [info for info in list_workflows() if fits(info)]


def _shown(info: WorkflowInfo) -> dict[str, Any]:
    return {
        "assistant_id": info.name,
        "graph_id": info.name,
        "name": str(info.title),
        "description": str(info.description),
        "config": {},
        "context": {},
        "metadata": {},
        "version": info.version,
        "created_at": _SINCE,
        "updated_at": _SINCE,
    }
