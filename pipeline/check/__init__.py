"""The accuracy pre-check: calls of a dump are run again on the device and on the CPU in high precision, and compared."""
