"""What things are: the tables in flow order, the closed words, the errors. Opens no file, computes nothing.

``DumpTable`` (one a side) -> ``PAIR_ROWS`` -> ``METRIC_ROWS`` -> verdict columns -> report columns (``headers``).
"""
