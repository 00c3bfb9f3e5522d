"""The reference job `contracts.review`: real documents in, a report a lawyer can use out.

Everything here except `workflow` is a plain library without Django; `workflow` declares the job.
"""
