"""What happened, for people: stored events and their live push."""
