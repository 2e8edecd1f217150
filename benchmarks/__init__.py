"""Measurements of speed and memory, and the dumps they run on. Not part of the wheel."""
