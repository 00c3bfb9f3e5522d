"""The tasks that run while faults happen: varied, slow enough to be hit, and people who serve them."""

import random
from typing import Any

from tests.faults.world import World

# An active task holds a process for some of its time; more of them only wait.
OPEN_TASKS = 24


def script(world: World, chance: random.Random) -> list[dict[str, Any]]:
    """Return a script of six to fourteen operations, at least one of them an act."""
    operations = [_operation(world, chance, number) for number in range(chance.randint(5, 13))]
    operations.insert(chance.randint(0, len(operations)), _act(world, chance, "sure"))
    return operations


def _operation(world: World, chance: random.Random, number: int) -> dict[str, Any]:
    match chance.randrange(12):
        case 0 | 1:
            return _act(world, chance, f"act{number}")
        case 2 | 3 | 4:
            return {"op": "sleep", "s": chance.uniform(0.05, 0.4), "block": True}
        case 5:
            return {"op": "sleep", "s": chance.uniform(0.1, 1.0)}
        case 6:
            return {"op": "map", "count": chance.randint(5, 60), "chunk": chance.choice((3, 10))}
        case 7:
            text = "x" * chance.choice((10, 1_000, 200_000))
            return {"op": "write", "path": f"file{number}.txt", "text": text}
        case 8:
            return {"op": "say", "text": "committed", "impure": True}
        case 9:
            file = str(world.folder / f"tries-{chance.getrandbits(48):x}")
            return {"op": "fail", "times": 1, "append": file}
        case 10:
            return {"op": "set", "values": {"number": number}}
        case _:
            return {"op": "say", "text": "held back"}


def _act(world: World, chance: random.Random, name: str) -> dict[str, Any]:
    kind = chance.choice(("keyed", "keyed", "queryable", "opaque"))
    asked = chance.random() < (0.15 if kind != "opaque" else 0.3)
    return {
        "op": "effect",
        "key": name,
        "kind": kind,
        "post": f"{world.outside.url}/{name}",
        "approve": asked,
        "unattended": kind == "opaque" and not asked,
    }


def question() -> dict[str, Any]:
    """Return an operation that asks a person."""
    return {"op": "interrupt", "value": "go on?"}
