"""Pack a data set into shards, and tell how to train from them."""

import shlex
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from vitlab.config.arguments import format_override
from vitlab.config.build import build
from vitlab.config.job import Job
from vitlab.config.nodes import escape_references
from vitlab.config.values import format_value
from vitlab.data.cache.reencoding import Reencoding, refuse_channels
from vitlab.data.loading.loader import choose_num_workers
from vitlab.data.pools.file_content import content
from vitlab.data.shards.webdataset import index_tars
from vitlab.data.shards.writing import MEGABYTE, write_shards
from vitlab.errors import ConfigError, DataError
from vitlab.invocation import format_command
from vitlab.run.checks.preconditions import check_images
from vitlab.run.storage.output import RUNS, output_folder

MOST_LINES = 10


def pack(cfg: DictConfig) -> Path:
    """Write cfg.data's splits, as the source brings them, into cfg.output, or index the tars in cfg.index; returns the
    folder with the index. Raises DataError where links or devices in the tars are left out, with the index written."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    check_pack(cfg)
    if cfg.index is not None:
        folder, index = index_only(cfg)
        console.print(
            f"train from it: {format_command('train')} data=shards {format_override('data.source.root', str(folder))}"
        )
        check_whole(index)
        return folder
    check_images(cfg.data)
    loading = build(cfg.data.loading, "data.loading")
    source = build(cfg.data.source, "data.source")
    source.prepare()
    pools = source.open()
    for pool in pools.values():
        refuse_channels(pool)
    output = output_folder(cfg.output, "pack", RUNS, overwrite=True).path  # which may hold the beginning of this
    index = write_shards(
        pools,
        source.class_names,
        output,
        Reencoding(cfg.data.images.mode, cfg.shorter_side, cfg.longest_side),
        shard_bytes=round(cfg.shard_size * MEGABYTE),
        num_workers=choose_num_workers(loading.num_workers, processes=1),
        on_bad_image=loading.on_bad_image,
    )
    for line in format_summary(index, output):
        console.print(line)
    console.print(f"train from it: {format_training_command(output)}")
    return output


def check_pack(cfg: DictConfig) -> None:
    """Raise ConfigError for keys that do not go together."""
    if cfg.index is not None:
        for key in ("shorter_side", "longest_side"):
            if cfg[key] is not None:
                raise ConfigError(f"{key} has no effect with index=, which does not change the tars; leave it out")
        return
    if cfg.class_names is not None:
        raise ConfigError(f"class_names={cfg.class_names} is used only with index=; leave it out")
    if cfg.shorter_side is not None and cfg.longest_side is not None:
        raise ConfigError("shorter_side and longest_side cannot both be given; leave out one of them")
    if cfg.output is None:
        raise ConfigError("output is missing; set output=DIR, the folder for the shards")
    if cfg.shard_size <= 0:
        raise ConfigError(f"shard_size {cfg.shard_size} is not a number of megabytes above 0")


def check_whole(index: dict[str, Any]) -> None:
    """Raise DataError for tars with members that an index cannot hold."""
    skipped = [name for entry in index["splits"].values() for name in entry.get("skipped", {})]
    if skipped:
        raise DataError(
            f"{len(skipped):,} members of the tars are not files, such as {skipped[0]}; pack the files themselves"
        )


def index_only(cfg: DictConfig) -> tuple[Path, dict[str, Any]]:
    """Index the tars in cfg.index; returns the folder of the index, and what index.json holds."""
    root = str(cfg.index).rstrip("/")
    if cfg.output is None and "://" in root:
        raise ConfigError(f"the index of {root} cannot be written there; set output=DIR to write it elsewhere")
    names = None
    if cfg.class_names is not None:
        try:
            names = content(cfg.class_names).decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"class_names={cfg.class_names} cannot be read: {error}; give a text file") from error
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"class_names={cfg.class_names} holds no names, or one twice; give a name in each line")
    folder = Path(root)
    if cfg.output is not None:
        folder = output_folder(cfg.output, "pack", RUNS, overwrite=True).path
    if cfg.output is None and not folder.is_dir():
        raise DataError(f"index={root}: there is no such folder")
    index = index_tars(
        root, folder, class_names=names, num_workers=choose_num_workers(cfg.data.loading.num_workers, processes=1)
    )
    for line in format_summary(index, folder):
        print(line)
    return folder, index


def format_summary(index: dict[str, Any], folder: Path) -> list[str]:
    """Say what was written, in lines."""
    lines = [f"{folder}: {len(index['class_names'])} classes"]
    for split, entry in index["splits"].items():
        size = sum(size for _, size in entry["shards"]) / MEGABYTE
        lines.append(f"  {split}: {entry['num_samples']:,} images in {len(entry['shards'])} shards, {size:,.1f} MB")
        skipped = entry.get("skipped", {})
        if skipped:
            lines.append(f"  {split}: {len(skipped):,} files could not be read and are left out")
        lines += [f"    {name}: {reason}" for name, reason in list(skipped.items())[:MOST_LINES]]
        lines += [f"    and {len(skipped) - MOST_LINES:,} more, in index.json"] if len(skipped) > MOST_LINES else []
    return lines


def format_training_command(output: Path) -> str:
    """Give the command that trains on the shards as it would on the original."""
    job = Job.current()
    data = [word for word in job.overrides if word.startswith("data.") and not word.startswith("data.source")]
    source = (
        f"+data.source={{_target_:vitlab.data.Shards,root:{format_value(escape_references(str(output.absolute())))}}}"
    )
    words = [f"data={job.choices['data']}", *data, "~data.source", source]
    return " ".join([format_command("train"), *map(shlex.quote, words)])
