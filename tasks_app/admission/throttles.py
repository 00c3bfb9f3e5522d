"""How often somebody may ask: token buckets in Redis, one for each person and one for each tenant.

Each bucket holds the requests of a minute and fills evenly (security S127). One script takes from
both or from none, so that no two processes let the same token through. While Redis is away requests
pass, but for those that make tasks: of these the rows of the last minute are counted.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from hashlib import sha256
from math import ceil
from typing import Any

import redis
from django.conf import settings
from django.db.models.functions import Now
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks_app import conf
from tasks_app.domain.errors import TooManyRequestsError
from tasks_app.domain.principal import Principal
from tasks_app.models import Task

logger = logging.getLogger(__name__)


class Rate(StrEnum):
    """Kinds of requests that are counted apart."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    APPROVALS = "approvals"
    LOGIN = "login"


PER_MINUTE: Mapping[Rate, int] = {
    Rate.READ: 600,
    Rate.WRITE: 120,
    Rate.CREATE: 60,
    Rate.APPROVALS: 60,
    Rate.LOGIN: 10,
}
# All people of a tenant together have so many times what one has.
TENANT_FACTOR = 10
MINUTE_SECONDS = 60
# How long Redis is not asked again after it was away: nobody waits for it at every request.
AWAY_SECONDS = 1.0

# KEYS are buckets, ARGV their sizes. Returns whether one was taken from each, what is left in the
# first, and the milliseconds until all would have one.
_TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local wait, left = 0, {}
for i, key in ipairs(KEYS) do
  local size = tonumber(ARGV[i])
  local had = redis.call('HMGET', key, 'left', 'at')
  local since = math.max(0, now - (tonumber(had[2]) or now))
  left[i] = math.min(size, (tonumber(had[1]) or size) + since * size / 60)
  if left[i] < 1 then wait = math.max(wait, (1 - left[i]) * 60 / size) end
end
if wait == 0 then
  for i, key in ipairs(KEYS) do
    left[i] = left[i] - 1
    redis.call('HSET', key, 'left', string.format('%.6f', left[i]), 'at', string.format('%.6f', now))
    redis.call('EXPIRE', key, 61)
  end
end
return {wait == 0 and 1 or 0, math.floor(left[1]), math.ceil(wait * 1000)}
"""

# Until when (monotonic) Redis counts as away.
_away_until = 0.0


@dataclass(frozen=True, slots=True)
class Charge:
    """A request that was let through: of which kind, how many a minute there are, and are left."""

    rate: Rate
    limit: int
    left: int

    @property
    def headers(self) -> dict[str, str]:
        """Return the draft standard's headers of rate limits."""
        return {
            "RateLimit-Policy": f'"{self.rate}";q={self.limit};w={MINUTE_SECONDS}',
            "RateLimit": f'"{self.rate}";r={self.left}',
        }


def rate_of(method: str, capability: str | Sequence[str] | None) -> Rate:
    """Return what a request counts as, by what its route needs."""
    needs = [capability] if isinstance(capability, str) else list(capability or [])
    if method in {"GET", "HEAD"} or (needs and all(name.endswith(":read") for name in needs)):
        return Rate.READ
    if method == "POST" and "tasks:create" in needs:
        return Rate.CREATE
    return Rate.APPROVALS if "approvals:decide" in needs else Rate.WRITE


def charge(principal: Principal, rate: Rate) -> Charge | None:
    """Count a request of somebody, whichever of their keys they use; None when nobody counts.

    Raises: TooManyRequestsError.
    """
    if not conf.runtime().throttle:
        return None
    limit = _limit(rate)
    names = [
        f"{principal.tenant_id}:throttle:{rate}:{principal.actor}",
        f"{principal.tenant_id}:throttle:{rate}",
    ]
    taken = _take(names, [limit, limit * TENANT_FACTOR])
    if taken is None:
        if rate is Rate.CREATE:
            _count_tasks(principal, limit)
        return None
    return Charge(rate, limit, _left_of(taken, rate))


def charge_login(address: str, username: str) -> None:
    """Count a try to sign in, by person and address, so that nobody locks out an office.

    Raises: TooManyRequestsError.
    """
    if not conf.runtime().throttle:
        return
    name = sha256(f"{address}\n{username.lower()}".encode()).hexdigest()
    taken = _take([f"throttle:{Rate.LOGIN}:{name}"], [_limit(Rate.LOGIN)])
    if taken is not None:
        _left_of(taken, Rate.LOGIN)


def _limit(rate: Rate) -> int:
    return conf.runtime().requests_per_minute.get(rate, PER_MINUTE[rate])


def _left_of(taken: Sequence[int], rate: Rate) -> int:
    passes, left, wait_milliseconds = taken
    if not passes:
        raise TooManyRequestsError(rate, max(1, ceil(wait_milliseconds / 1000)))
    return left


def _take(names: Sequence[str], sizes: Sequence[int]) -> Sequence[int] | None:
    """Take one from each bucket, or from none; None while Redis is away."""
    global _away_until
    if time.monotonic() < _away_until:
        return None
    try:
        taken: Sequence[int] = _script()(keys=names, args=sizes)
    except redis.RedisError as error:
        _away_until = time.monotonic() + AWAY_SECONDS
        logger.warning("throttle.redis_away", extra={"error": str(error)})
        return None
    return taken


def _count_tasks(principal: Principal, limit: int) -> None:
    """Refuse who has as many tasks of the last minute as a minute may bring."""
    rows = Task.objects.for_tenant(principal.tenant_id).filter(initiator_id=principal.user_id)
    newest = rows.filter(created_at__gt=Now() - timedelta(seconds=MINUTE_SECONDS))
    if len(newest.values_list("pk")[:limit]) >= limit:
        raise TooManyRequestsError(Rate.CREATE, MINUTE_SECONDS // limit + 1)


@cache
def _script() -> Any:
    options: dict[str, Any] = {**settings.THROTTLE_REDIS, "retry": Retry(NoBackoff(), 0)}
    return redis.Redis(**options).register_script(_TAKE)
