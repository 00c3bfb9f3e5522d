"""The values of a thread as a fold of events: what each message, change and output does to them.

Plain rules: the engine folds to store states, queries fold to show what was in between.
"""

from collections.abc import Iterable, Mapping
from typing import Any

# Types of the events that change values; events.catalogue says what their data is.
MESSAGE = "message"
VALUES = "values"
ARTIFACT = "artifact"
CHANGES = (MESSAGE, VALUES, ARTIFACT)
# What every state has at least.
EMPTY: Mapping[str, Any] = {"messages": [], "result": None, "artifacts": []}


def message_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message that an event tells of, without the step that said it."""
    return {key: value for key, value in data.items() if key != "step"}


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with everything that readers may rely on."""
    return {**EMPTY, **values}


def begin(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run begins with: outputs and result are each run's own."""
    return complete({**before, "artifacts": [], "result": None})


def apply(
    values: dict[str, Any], events: Iterable[tuple[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return values after events; a message with a known id takes the place of the old one."""
    messages = {str(message.get("id")): message for message in values["messages"]}
    artifacts = list(values["artifacts"])
    changed: dict[str, Any] = {}
    for kind, data in events:
        if kind == MESSAGE:
            messages[str(data["id"])] = message_of(data)
        elif kind == VALUES:
            changed |= data["values"]
        elif kind == ARTIFACT:
            artifacts.append(dict(data))
    own = {name: value for name, value in changed.items() if name not in EMPTY}
    return {**values, **own, "messages": list(messages.values()), "artifacts": artifacts}
