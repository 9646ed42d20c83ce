"""Score a finished run on any of its splits."""

from hashlib import blake2b
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vitlab.callbacks import EvaluationReport, Progress
from vitlab.config.build import plain
from vitlab.config.redaction import check_kept
from vitlab.config.resume import movable
from vitlab.data.pools.split_names import SPLITS
from vitlab.errors import ConfigError, DataError
from vitlab.out_of_memory import refusing
from vitlab.run import console
from vitlab.run.changed_writing import changed_writing, with_writing
from vitlab.run.fitting_batch import too_many
from vitlab.run.result import partial_use
from vitlab.run.saved_run import SavedRun
from vitlab.run.trainer import build_trainer


def evaluate(cfg: DictConfig) -> dict[str, float]:
    """Rebuild the run, score cfg.split exactly, write evaluation_<split>.json and what the run's test writes.

    What the run itself has written is written again only by its best model on its own images.
    """
    if cfg.split not in SPLITS:
        raise ConfigError(f"split '{cfg.split}' is not one of: {', '.join(SPLITS)}")
    if cfg.trainer.get("limit_test_batches") in (0, False):
        raise ConfigError("trainer.limit_test_batches 0 would score nothing; make it larger")
    given = plain(OmegaConf.masked_copy(cfg, ["data", "trainer"]))
    saved = with_writing(SavedRun.open(cfg.run, given), cfg)
    if cfg.templates is not None and not saved.checkpoint["run"]["class_names"]:
        raise ConfigError(
            f"templates= are what names of classes are put into, and run={cfg.run} has none; leave it out"
        )
    if "cache" in saved.config.data and "kind" not in given["data"].get("cache", {}):
        saved = saved.changed({"data": {"cache": {"kind": "none"}}})  # evaluation reads the originals
    check_kept(plain(saved.config)["data"], "data")
    datamodule = saved.datamodule()
    datamodule.prepare_data()
    datamodule.setup()
    folder = place_for(cfg, saved, datamodule.fingerprint)
    folder.mkdir(parents=True, exist_ok=True)
    callbacks = [Progress(), EvaluationReport(num_worst=cfg.num_worst)]
    trainer = build_trainer(saved.config.trainer, folder, False, callbacks)
    known = None if "device_batch_size" in cfg.data else saved.checkpoint["run"]["device_batch_size"]
    size = cfg.data.get("device_batch_size") or 0
    if size > 0 and "global_batch_size" not in cfg.data:  # nothing is accumulated here
        datamodule.global_batch_size = size * trainer.world_size
    datamodule.attach(trainer, at_most=known, test_split=cfg.split)
    if list(datamodule.class_names) != saved.checkpoint["run"]["class_names"]:
        raise DataError(f"the data has the classes {datamodule.class_names}, other ones than the run was trained on")
    if datamodule.vocabulary != saved.vocabulary:
        raise DataError("the texts of the data are in another vocabulary than the run was trained on")
    with refusing(lambda: too_many(datamodule, trainer, None)):
        trainer.test(saved.task(), datamodule=datamodule, verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    partial = partial_use(trainer)
    output = folder / f"evaluation_{cfg.split}.json"
    console.write_json(output, {"checkpoint": str(saved.path), "split": cfg.split, "partial": partial, **metrics})
    facts = {"checkpoint": str(saved.path), "saved": str(output)}
    if skipped := datamodule.skipped[cfg.split]:
        facts["skipped"] = f"{len(skipped)} unreadable images"
    if partial:
        facts["partial"] = f"not every sample was used: {', '.join(partial)}"
    if datamodule.fingerprint != saved.checkpoint["run"]["fingerprint"]:
        facts["data"] = "not the files that the run was trained on"
    console.print_result(metrics, facts, {})
    return metrics


def place_for(cfg: DictConfig, saved: SavedRun, fingerprint: str) -> Path:
    """Choose the folder of the results: the run's own where its own test is repeated, else one within it for another
    checkpoint, other images or a part of them."""
    if cfg.output is not None:
        if Path(cfg.output).is_file():
            raise ConfigError(f"output={cfg.output} is a file; name a folder")
        return Path(cfg.output).absolute()
    if cfg.trainer.get("limit_test_batches") in (0, False):
        raise ConfigError("trainer.limit_test_batches 0 would score nothing; make it larger")
    given = flat(plain(cfg)["data"], "data").items()
    same = {key for key, _ in given if key == "data.cache.kind" or movable(key)}
    same -= {key for key in same if key.startswith("data.source.")}  # elsewhere it may hold other pixels by its names
    changed = {key: value for key, value in given if key not in same}
    changed |= {key: value for key, value in plain(cfg)["trainer"].items() if key.startswith(("limit_", "fast_dev"))}
    changed |= changed_writing(cfg)
    if fingerprint != saved.checkpoint["run"]["fingerprint"]:
        changed["fingerprint"] = fingerprint
    tested = saved.path.name == "best.ckpt" or not saved.path.with_name("best.ckpt").exists()
    if tested and not changed:
        return saved.folder
    images = [blake2b(str(changed).encode(), digest_size=4).hexdigest()] if changed else []
    return saved.folder / "_".join(["evaluation", saved.path.stem, *images])


def flat(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Flatten the values below a key to their full names."""
    found: dict[str, Any] = {}
    for name, value in node.items():
        found |= flat(value, f"{key}.{name}") if isinstance(value, dict) else {f"{key}.{name}": value}
    return found
