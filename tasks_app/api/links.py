"""OpenAPI links: which answer holds what the next request needs, for programs that find their way.

Each is (operation, status, operation that may follow, parameters, parts of its body); the places
are JSON pointers into the answer, or names of its own path parameters.
"""

from collections.abc import Mapping
from typing import Any

_TASK_PARTS = (
    "getTask", "listCommands", "listSteps", "listPlans", "listSlices", "listAttempts",
    "listCheckpoints", "listEffects", "listArtifacts", "listEvents", "listAudit", "listRepairs",
)  # fmt: skip
_SCHEDULE_ACTS = (
    "getSchedule", "pauseSchedule", "resumeSchedule", "fireSchedule", "deleteSchedule",
)  # fmt: skip

Link = tuple[str, int, str, Mapping[str, str], Mapping[str, str]]

LINKS: tuple[Link, ...] = (
    *(("createTask", 201, name, {"task_id": "/taskId"}, {}) for name in _TASK_PARTS),
    ("createTask", 201, "steerTask", {"task_id": "/taskId"}, {"expectedVersion": "/stateVersion"}),
    ("listTasks", 200, "getTask", {"task_id": "/items/0/taskId"}, {}),
    (
        "getTask", 200, "steerTask",
        {"task_id": "/taskId"}, {"expectedVersion": "/stateVersion"},
    ),
    (
        "steerTask", 202, "steerTask",
        {"task_id": "/taskId"}, {"expectedVersion": "/stateVersion"},
    ),
    ("steerTask", 202, "getTask", {"task_id": "/taskId"}, {}),
    ("steerTask", 202, "listCommands", {"task_id": "/taskId"}, {}),
    ("listApprovals", 200, "getApproval", {"approval_id": "/items/0/id"}, {}),
    (
        "listApprovals", 200, "decideApproval", {"approval_id": "/items/0/id"},
        {"argsSha256": "/items/0/argsSha256", "expectedVersion": "/items/0/version"},
    ),
    (
        "getApproval", 200, "decideApproval", {"approval_id": "/id"},
        {"argsSha256": "/argsSha256", "expectedVersion": "/version"},
    ),
    ("decideApproval", 200, "getTask", {"task_id": "/taskId"}, {}),
    ("listArtifacts", 200, "getArtifact", {"artifact_id": "/items/0/id"}, {}),
    ("getArtifact", 200, "getArtifactContent", {"artifact_id": "/id"}, {}),
    (
        "listHeldTasks", 200, "repairTask", {"task_id": "/items/0/taskId"},
        {"expectedVersion": "/items/0/stateVersion"},
    ),
    ("repairTask", 202, "getTask", {"task_id": "/taskId"}, {}),
    ("repairTask", 202, "listRepairs", {"task_id": "/taskId"}, {}),
    *(("createSchedule", 201, name, {"schedule_id": "/id"}, {}) for name in _SCHEDULE_ACTS),
    ("fireSchedule", 200, "getTask", {"task_id": "/taskId"}, {}),
    ("createKey", 201, "rotateKey", {"key_id": "/id"}, {}),
    ("createKey", 201, "revokeKey", {"key_id": "/id"}, {}),
)  # fmt: skip


def add_links(document: dict[str, Any]) -> None:
    """Write the links into an OpenAPI document."""
    operations = {
        operation["operationId"]: operation
        for path in document["paths"].values()
        for operation in path.values()
    }
    for source, status, target, parameters, body in LINKS:
        answer = operations[source]["responses"][str(status)]
        link: dict[str, Any] = {
            "operationId": target,
            "parameters": {name: _place(pointer) for name, pointer in parameters.items()},
        }
        if body:
            link["requestBody"] = {name: _place(pointer) for name, pointer in body.items()}
        answer.setdefault("links", {})[target] = link


def _place(pointer: str) -> str:
    return f"$response.body#{pointer}"
