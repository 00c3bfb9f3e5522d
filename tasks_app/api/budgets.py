"""Limits and prices over REST: list them, set them."""

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission.budgets import set_limit, set_price
from tasks_app.api.base import RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import LimitInput, PriceInput
from tasks_app.api.lists import LimitListQuery, PriceListQuery
from tasks_app.api.outputs import LimitOut, LimitPage, PriceOut, PricePage
from tasks_app.queries.budgets import limit_row, list_limits, list_prices, price_row


class BudgetListView(RuntimeView):
    """The limits that stand above tasks."""

    capabilities: ClassVar = {"GET": "budgets:manage", "POST": "budgets:manage"}
    query_models: ClassVar = {"GET": LimitListQuery}

    @documented("listBudgets", "List limits", capability="budgets:manage", query=LimitListQuery,
                returns=LimitPage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return the limits of the tenant and of its agents, with what is used of them."""
        return self.page(LimitOut, list_limits)

    @documented(
        "setBudget",
        "Set a limit",
        capability="budgets:manage",
        body=LimitInput,
        returns=LimitOut,
        codes=("not_found",),
        example={"kind": "tokens", "period": "month", "limit": 50_000_000, "reason": "plan B"},
        keeps=True,
    )
    def post(self, request: Request) -> Response:
        """Set or lift how much of a kind may be used; running tasks keep what they were granted."""
        body = self.body(LimitInput)

        def act() -> Response:
            row = set_limit(
                self.principal,
                kind=body.kind,
                limit=body.limit,
                period=body.period,
                agent_id=body.agent_id,
                reason=body.reason,
                request_id=self.request_id,
            )
            return answer(LimitOut.of(limit_row(row)))

        return self.once(act)


class PriceListView(RuntimeView):
    """What models and tools cost."""

    capabilities: ClassVar = {"GET": "budgets:manage", "POST": "budgets:manage"}
    query_models: ClassVar = {"GET": PriceListQuery}

    @documented("listPrices", "List prices", capability="budgets:manage", query=PriceListQuery,
                returns=PricePage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return prices, the newest first."""
        return self.page(PriceOut, list_prices)

    @documented(
        "setPrice",
        "Set a price",
        capability="budgets:manage",
        body=PriceInput,
        returns=PriceOut,
        status=201,
        example={
            "subject": "small",
            "unit": "input_token",
            "microsPerMillion": 2_500_000,
            "reason": "price list of May",
        },
        keeps=True,
    )
    def post(self, request: Request) -> Response:
        """Say what a million units cost from now on."""
        body = self.body(PriceInput)

        def act() -> Response:
            price = set_price(
                self.principal,
                subject=body.subject,
                unit=body.unit,
                micros_per_million=body.micros_per_million,
                reason=body.reason,
                request_id=self.request_id,
            )
            return answer(PriceOut.of(price_row(price)), status=201)

        return self.once(act)
