"""The names of the faults and how often each comes; imports nothing, so that arguments can be checked."""

# Of a thousand faults so many are of a kind; each kind comes at least once.
WEIGHTS = {
    "kill_worker": 300,
    "freeze_worker": 110,
    "cut_session": 190,
    "change_clock": 80,
    "lose_messages": 60,
    "triple_messages": 60,
    "flush_redis": 60,
    "fill_disk": 30,
    "flip_bit": 25,
    "race_for_approval": 25,
    "storm_of_steering": 30,
    "kill_sweeper": 9,
    "kill_machine": 9,
    "restart_redis": 6,
    "redis_away": 3,
    "restart_postgres": 3,
}
