"""The MLP of an encoder block (Dosovitskiy et al., 2021, arXiv:2010.11929, section 3.1).

B batch, N tokens, D embed_dim
"""

from torch import Tensor, nn


class MLP(nn.Module):
    """Two linear layers with a GELU between (Hendrycks & Gimpel, 2016, arXiv:1606.08415). (B, N, D) -> (B, N, D)."""

    def __init__(self, *, embed_dim: int, mlp_dim: int, drop_rate: float):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, mlp_dim)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(drop_rate)
        self.fc2 = nn.Linear(mlp_dim, embed_dim)
        self.drop2 = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))
