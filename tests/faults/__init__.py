"""`manage.py faults`: real processes and servers are hurt for as long as one likes, then judged."""
