"""Score a finished run on any of its splits."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from vitlab.callbacks import EvaluationReport, Progress
from vitlab.config.nodes import resolve_config
from vitlab.config.redaction import check_kept
from vitlab.data import DataModule
from vitlab.data.pools.split_names import SPLITS
from vitlab.distributed.environment import is_other_rank
from vitlab.errors import ConfigError, DataError
from vitlab.out_of_memory import refuse_out_of_memory
from vitlab.run.building.trainer import build_trainer, watch_ranks
from vitlab.run.checks.batch_advice import advise_batch_size
from vitlab.run.inference.generation_options import apply_generation_options
from vitlab.run.inference.saved_run import SavedRun
from vitlab.run.printing import console
from vitlab.run.storage.output import output_folder
from vitlab.run.storage.result import partial_use
from vitlab.verification.seal import describe_seal


def evaluate(cfg: DictConfig) -> dict[str, float]:
    """Rebuild the run, score cfg.split exactly, write evaluation_<split>.json and what a test writes; return the
    metrics."""
    if cfg.split not in SPLITS:
        raise ConfigError(f"split '{cfg.split}' is not one of: {', '.join(SPLITS)}")
    if cfg.trainer.get("limit_test_batches") in (0, False):
        raise ConfigError("trainer.limit_test_batches 0 would score no sample; make it larger")
    if cfg.trainer.get("precision") == "auto":
        raise ConfigError(
            "trainer.precision=auto is chosen only when a run starts; leave it out to use the run's precision"
        )
    given = resolve_config(OmegaConf.masked_copy(cfg, ["data", "trainer"]))
    saved = apply_generation_options(SavedRun.open(cfg.run, given), cfg)
    place = output_folder(cfg.output, "evaluate", saved.folder / "evaluate", overwrite=cfg.overwrite)
    if cfg.templates is not None and not saved.checkpoint["run"]["class_names"]:
        raise ConfigError(f"templates= need class names, but run={cfg.run} has none; leave it out")
    if "cache" in saved.config.data and "kind" not in given["data"].get("cache", {}):
        saved = saved.change_config({"data": {"cache": {"kind": "none"}}})  # evaluation reads the originals
    check_kept({"data": resolve_config(saved.config)["data"]})
    datamodule = saved.datamodule()
    datamodule.setup()
    if list(datamodule.class_names) != saved.checkpoint["run"]["class_names"]:
        raise DataError(f"the data has the classes {datamodule.class_names}, but the run was trained on other classes")
    own = datamodule.vocabularies()
    if own != {key: saved.checkpoint["run"].get(key) for key in own}:
        raise DataError("the vocabulary of the data differs from the run's; give the data that the run was trained on")
    if is_other_rank():
        return score(cfg, saved, datamodule, saved.folder)
    with place.make_folder() as folder:
        return score(cfg, saved, datamodule, folder)


def score(cfg: DictConfig, saved: SavedRun, datamodule: DataModule, folder: Path) -> dict[str, float]:
    """Score the split, and write and print what was found."""
    callbacks = [Progress(), EvaluationReport(num_worst=cfg.num_worst)]
    trainer = build_trainer(saved.config.trainer, folder, False, callbacks)
    known = None if "device_batch_size" in cfg.data else saved.checkpoint["run"]["device_batch_size"]
    size = cfg.data.get("device_batch_size") or 0
    if size > 0 and "global_batch_size" not in cfg.data:  # nothing is accumulated here
        datamodule.global_batch_size = size * trainer.world_size
    datamodule.attach(trainer, at_most=known, test_split=cfg.split)
    with watch_ranks(trainer), refuse_out_of_memory(lambda: advise_batch_size(datamodule, trainer, None)):
        trainer.test(saved.task(), datamodule=datamodule, verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    partial = partial_use(trainer)
    output = folder / f"evaluation_{cfg.split}.json"
    console.write_json(output, {"checkpoint": str(saved.path), "split": cfg.split, "partial": partial, **metrics})
    facts = {"checkpoint": str(saved.path), "saved": str(output)}
    if saved.path.name == "best.ckpt":
        facts["seal"] = describe_seal(saved.folder)
    if skipped := datamodule.skipped[cfg.split]:
        facts["skipped"] = f"{len(skipped)} unreadable images"
    if partial:
        facts["partial"] = f"not every sample was used: {', '.join(partial)}"
    if datamodule.fingerprint != saved.checkpoint["run"]["fingerprint"]:
        facts["data"] = "not the files that the run was trained on"
    console.print_result(metrics, facts, {})
    return metrics
