"""What Lightning lacks: exact checkpoints, one log entry per interval, pictures of what goes in and comes out."""

from vitlab.callbacks.batch_picture import BatchPicture
from vitlab.callbacks.best_model import BestModel
from vitlab.callbacks.calibration import Calibration
from vitlab.callbacks.checkpoint_io import AtomicCheckpointIO
from vitlab.callbacks.checks_run import ChecksRun
from vitlab.callbacks.early_stopping import EarlyStopping
from vitlab.callbacks.ema import EMA
from vitlab.callbacks.evaluation_report import EvaluationReport
from vitlab.callbacks.feature_probe import FeatureProbe
from vitlab.callbacks.interruption import Interruption
from vitlab.callbacks.latest_state import LatestState
from vitlab.callbacks.model_views import ModelViews
from vitlab.callbacks.progress import Progress
from vitlab.callbacks.reconstruction_picture import ReconstructionPicture
from vitlab.callbacks.step_log import StepLog
from vitlab.callbacks.swa import SWA
from vitlab.callbacks.weight_averaging import WeightAverage

__all__ = [
    "EMA",
    "SWA",
    "AtomicCheckpointIO",
    "BatchPicture",
    "BestModel",
    "Calibration",
    "ChecksRun",
    "EarlyStopping",
    "EvaluationReport",
    "FeatureProbe",
    "Interruption",
    "LatestState",
    "ModelViews",
    "Progress",
    "ReconstructionPicture",
    "StepLog",
    "WeightAverage",
]
