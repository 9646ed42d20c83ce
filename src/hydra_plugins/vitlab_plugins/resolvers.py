"""Functions that configs may call, where Hydra starts: it imports this file by itself."""

from vitlab.config.resolvers import RESOLVERS as RESOLVERS
