"""One trial in several processes, data parallel: each takes its share of every batch, and all make the same
update with the mean of their gradients.

The first process is the worker itself. It runs the loop, tests, and writes all records; the others, its
crew, take part in the updates and nothing else.
"""
