"""Bugs that are planted into the engine to see that the oracles find them."""
