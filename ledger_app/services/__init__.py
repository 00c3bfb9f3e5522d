"""Writers of the ledger, and the verification of what was written.

A writing function is one SQL statement that carries its own audit entry, so "no audit, no change"
needs no transaction of its own. The statement locks the audit stream last: call these functions
after all other locks of the transaction are taken.
"""
