"""Fully sharded data parallelism: every process learns from its share of each batch, and keeps its share of weights,
gradients and optimizer (Rajbhandari et al., 2020, arXiv:1910.02054, stage 3), by torch's FSDP2."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import torch
from pytorch_lightning.strategies import ModelParallelStrategy, Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.optim import Optimizer

from vitlab.distributed.launcher import Launcher
from vitlab.distributed.sharding import fill, iterate_tensors, take_own_part, unshard_state, unshard_tensor
from vitlab.ranges import Count, Positive
from vitlab.skeleton import copy_without_values

LISTS = ("blocks", "decoder_blocks")  # lists of modules that are gathered one by one
KEPT: WeakSet[Any] = WeakSet()  # blocks whose gathered weights are kept until the backward pass
CALLED = ("compute_both_logits",)  # methods that training calls in place of a model itself


class FullySharded(ModelParallelStrategy):
    """Lightning's FSDP2, with `copies` of the model: 1 shards it over all devices (FSDP), more over as many groups of
    them, as one for each machine (HSDP). Ranks wait for each other for `timeout_minutes` at most.

    Blocks are gathered one by one in forward and backward pass, in float32: with bf16-mixed the products alone are in
    bfloat16, as with DDP, and gradients are added up in float32. With `gather_bf16` blocks are sent, and computed, in
    bfloat16. `reshard_after_forward`: a block is gathered again for the backward pass, else kept until then. With
    `reduce_once`, micro-batches that only accumulate send no gradients, and each device keeps whole ones until the
    last. For an evaluation each device gathers the whole model once, so that one rank may have more batches than
    another. A checkpoint is the file that one process would write, so that any number of devices can go on with it,
    sharded or not.
    """

    def __init__(
        self,
        *,
        copies: Count,
        timeout_minutes: Positive,
        reshard_after_forward: bool,
        gather_bf16: bool,
        reduce_once: bool,
    ):
        super().__init__(save_distributed_checkpoint=False, timeout=timedelta(minutes=timeout_minutes))
        self.copies = copies
        self.reshard_after_forward, self.reduce_once = reshard_after_forward, reduce_once
        self.gathered = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if gather_bf16 else MixedPrecisionPolicy()
        self.mesh: DeviceMesh | None = None
        self.templates: dict[nn.Module, nn.Module] = {}  # of each sharded model its structure, without weights

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = Launcher(self.cluster_environment, self.num_processes, self.num_nodes)

    def setup_environment(self) -> None:
        """Let the processes meet, and divide them into groups that share a copy."""
        world = self.num_nodes * self.num_processes
        self._data_parallel_size, self._tensor_parallel_size = world, 1
        super().setup_environment()
        if isinstance(self.launcher, Launcher):
            self.launcher.start_presence()
        if self.mesh is not None:
            return
        kind = self.root_device.type
        if self.copies == 1:
            self.mesh = init_device_mesh(kind, (world,), mesh_dim_names=("shards",))
        else:
            ranks = torch.arange(world).view(self.copies, -1)
            groups = [self.make_group(ranks.T), self.make_group(ranks)]
            self.mesh = DeviceMesh.from_group(groups, kind, mesh=ranks, mesh_dim_names=("copies", "shards"))

    def make_group(self, ranks: Tensor) -> torch.distributed.ProcessGroup:
        """Make a group of each row of ranks, and return the one that this rank is in. The groups that a mesh makes by
        itself wait for half an hour, whatever the timeout."""
        own, _ = torch.distributed.new_subgroups_by_enumeration(ranks.tolist(), timeout=self._timeout)
        assert isinstance(own, torch.distributed.ProcessGroup)
        return own

    def shard(self, model: nn.Module) -> None:
        """Leave each device its share of the weights, in place; of a model that is sharded already nothing changes."""
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            return
        self.templates[model] = copy_without_values(model, "meta")
        for block in units(model):
            fully_shard(
                block, mesh=self.mesh, mp_policy=self.gathered, reshard_after_forward=self.reshard_after_forward
            )
            if not self.reshard_after_forward:
                KEPT.add(block)
        fully_shard(model, mesh=self.mesh, mp_policy=self.gathered)
        for name in CALLED:
            if hasattr(model, name):
                register_fsdp_forward_method(model, name)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Within, add up gradients without sending them, unless each micro-batch is to send its own."""
        parts = list_sharded_parts(self.lightning_module) if self.reduce_once else []
        for part in parts:
            part.set_requires_gradient_sync(False, recurse=False)
        yield
        for part in parts:
            part.set_requires_gradient_sync(True, recurse=False)

    def copy_unsharded(self, model: nn.Module) -> nn.Module | None:
        """Return, on the first rank, a copy of a sharded model that holds all of its weights; None on the others, which
        call it too. The device needs room for one whole model: nothing stays gathered, as for an evaluation."""
        reshard_weights(model)
        with torch.inference_mode(False), torch.no_grad():  # views differentiate it
            copied = (
                copy_without_values(self.templates[model], str(self.root_device)).eval()
                if self.is_global_zero
                else None
            )
            filled = dict(iterate_tensors(copied)) if copied is not None else {}
            for name, part in iterate_tensors(model):
                value = unshard_tensor(part)  # on all ranks
                if copied is not None:
                    filled[name].copy_(value)
        return copied

    # -- checkpoints: whole, and by our own writer

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return unshard_state(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Gather the optimizer's state, by the numbers of the parameters, as one process has it."""
        state = getattr(optimizer, "_optimizer", optimizer).state_dict()
        return {**state, "state": {number: unshard_state(values) for number, values in state["state"].items()}}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint: dict[str, Any] = Strategy.load_checkpoint(self, checkpoint_path, weights_only)
        return checkpoint

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    @torch.no_grad()
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        for name, value in self.lightning_module.state_dict().items():
            fill(value, checkpoint["state_dict"][name])

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Give each device its part of what was kept of each parameter; the rest, as a count, is the same on all."""
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: take_own_part(value, parameters[number]) for name, value in values.items()}
                for number, values in saved["state"].items()
            }
            optimizer.load_state_dict({**saved, "state": state})


def units(model: nn.Module) -> list[nn.Module]:
    """List the blocks of a model, each of which is gathered by itself."""
    lists = [found for name, found in model.named_modules() if name.split(".")[-1] in LISTS]
    return [block for found in lists if isinstance(found, nn.ModuleList | nn.Sequential) for block in found]


def unshard_weights(module: nn.Module) -> None:
    """Keep all weights of a sharded module on each device until its state is asked for or `reshard_weights`."""
    for part in list_sharded_parts(module):
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()


def reshard_weights(module: nn.Module) -> None:
    """Leave each device its share, as in training."""
    for number, part in enumerate(list_sharded_parts(module)):
        part.reshard()
        # the trunk's are needed at once in the backward pass
        part.set_reshard_after_forward(number > 0 and part not in KEPT, recurse=False)


def list_sharded_parts(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]
