"""The front desk: every write that a door asks for is authorised and decided here."""
