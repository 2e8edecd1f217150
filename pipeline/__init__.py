"""What happens: reads dumps, matches, measures, judges and reports. Contains no formula."""
