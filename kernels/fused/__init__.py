"""Fused operators: references in the precision of their inputs, gradients, and what takes their place on cuda."""

from opassay.kernels.fused.table import FUSED, FusedOp, cuda_equivalent, reference

__all__ = ["FUSED", "FusedOp", "cuda_equivalent", "reference"]
