"""How close an operator's output is to its reference, and what that is worth: the accuracy pre-check's arithmetic."""
