"""What a call of a model or a paid tool used, as a step reports it; entered with the step's outcome."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UsageReport:
    """One call; `source_id` is its id, so that the same call counts once however often it is told.

    `cost_micros` is in millionths of the tenant's currency; None asks for the tenant's price.
    """

    source_id: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_micros: int | None = None
    caller: str = "step"
