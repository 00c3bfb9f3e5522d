"""Wires the applications together; decides nothing. Imports nothing: bootstrap lives here too."""
