"""What a model costs before it runs: parameters, multiply-accumulates, memory. Nothing is computed or allocated."""

from vitlab.counting.memory import TrainingMemory, activation_bytes, optimizer_bytes_per_value, training_memory
from vitlab.counting.operations import Cost, costs, multiply_accumulates, total
from vitlab.counting.tokens import Sequence, sequence_cost

__all__ = [
    "Cost",
    "Sequence",
    "TrainingMemory",
    "activation_bytes",
    "costs",
    "multiply_accumulates",
    "optimizer_bytes_per_value",
    "sequence_cost",
    "total",
    "training_memory",
]
