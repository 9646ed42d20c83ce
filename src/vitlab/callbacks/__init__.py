"""What Lightning lacks: exact checkpoints, one log entry per interval, pictures of what goes in and comes out."""

from vitlab.callbacks.batch_picture import BatchPicture
from vitlab.callbacks.best_model import BestModel
from vitlab.callbacks.checkpoint_io import AtomicCheckpointIO
from vitlab.callbacks.ema import EMA
from vitlab.callbacks.evaluation_report import EvaluationReport
from vitlab.callbacks.interruption import Interruption
from vitlab.callbacks.latest_state import LatestState
from vitlab.callbacks.model_views import ModelViews
from vitlab.callbacks.progress import Progress
from vitlab.callbacks.step_log import StepLog

__all__ = [
    "EMA",
    "AtomicCheckpointIO",
    "BatchPicture",
    "BestModel",
    "EvaluationReport",
    "Interruption",
    "LatestState",
    "ModelViews",
    "Progress",
    "StepLog",
]
