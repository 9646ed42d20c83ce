"""Scoring a finished run on any of its splits."""

from omegaconf import DictConfig, OmegaConf

from vitlab.callbacks import EvaluationReport, Progress
from vitlab.data.sources.split_names import SPLITS
from vitlab.errors import ConfigError, DataError
from vitlab.run import report
from vitlab.run.saved_run import SavedRun
from vitlab.run.trainer import build_trainer, set_accumulation
from vitlab.run.training import partial_use


def evaluate(cfg: DictConfig) -> dict[str, float]:
    """Rebuild the run, score cfg.split exactly, write evaluation_<split>.json beside its other results."""
    if cfg.split not in SPLITS:
        raise ConfigError(f"split '{cfg.split}' is not one of: {', '.join(SPLITS)}")
    changes = {key: OmegaConf.to_container(cfg[key], resolve=True) for key in ("data", "trainer") if cfg.get(key)}
    saved = SavedRun.open(cfg.run, changes)
    callbacks = [Progress(), EvaluationReport(num_worst=cfg.num_worst)]
    trainer = build_trainer(saved.config.trainer, saved.folder, False, callbacks)
    datamodule = saved.datamodule()
    datamodule.trainer = trainer
    datamodule.device_batch_size = saved.checkpoint["run"]["device_batch_size"]
    set_accumulation(trainer, datamodule)
    datamodule.prepare_data()
    datamodule.setup()
    if list(datamodule.class_names) != saved.checkpoint["run"]["class_names"]:
        raise DataError(f"the data has the classes {datamodule.class_names}, other ones than the run was trained on")
    datamodule.test_split = cfg.split
    trainer.test(saved.task(), datamodule=datamodule, verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    partial = partial_use(trainer)
    output = saved.folder / f"evaluation_{cfg.split}.json"
    report.write_json(output, {"checkpoint": str(saved.path), "split": cfg.split, "partial": partial, **metrics})
    facts = {"checkpoint": str(saved.path), "saved": str(output)}
    if skipped := datamodule.skipped[cfg.split]:
        facts["skipped"] = f"{len(skipped)} unreadable images"
    if partial:
        facts["partial"] = f"not every sample was used: {', '.join(partial)}"
    if datamodule.fingerprint != saved.checkpoint["run"]["fingerprint"]:
        facts["data"] = "not the files that the run was trained on"
    report.print_result(metrics, facts, {})
    return metrics
