"""Ways to the outside world that the engine offers to workflows."""
