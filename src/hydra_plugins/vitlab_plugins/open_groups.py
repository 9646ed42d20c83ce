"""Open groups to keys that their YAMLs do not state, without a plus: Lightning's Trainer has many more.

`defaults: [_open]` in a YAML of the group opens it. Which keys are allowed is checked after the config is composed.
"""

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

ConfigStore.instance().store(group="trainer", name="_open", node=OmegaConf.create({}, flags={"struct": False}))
