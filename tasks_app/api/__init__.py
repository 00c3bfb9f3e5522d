"""REST: parse, call admission or queries, render."""
