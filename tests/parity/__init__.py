"""Cell-by-cell comparison of a tool's reports with stored reports of the incumbent.

Every difference is judged by an independent reading of the dumps: nothing here imports the package under test.
"""
