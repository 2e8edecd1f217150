"""Sixth station: from the facts of every rank to the first operator that is wrong, and the files of ``-da``."""
