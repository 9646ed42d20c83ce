"""One Transformer for images and texts: patches, a question and its answer are one sequence, which one set of blocks
reads (Kim et al., 2021, arXiv:2102.03334, ViLT, section 3.1) and writes on as a prefix language model does (Dong et
al., 2019, arXiv:1905.03197, UniLM, section 2.3).

B batch, C channels, H W image height and width, P patch_size, N patches, Q question_length, S tokens that are given
(those before the patches, patches, and the question), R texts (B, or a multiple), M tokens of an answer, D embed_dim, V
vocab_size, L layers, h heads
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers import Grids, LearnedSequencePosition, TokenEmbedding, mask_padding
from vitlab.models.attention_weights import record_attention
from vitlab.models.reading_encoder import require_encoder, take_heads_off
from vitlab.models.text_state import TextState
from vitlab.ranges import Length, Pixels, VocabSize

IMAGE, TEXT = 0, 1  # rows of type_embed


class StreamInput(NamedTuple):
    """Tokens of an image and a question (B, S, D), and an `attn_mask`, as in `Attention`, that hides what only fills an
    image up."""

    tokens: Tensor
    attn_mask: Tensor | None


class StreamAttentionMaps(NamedTuple):
    """Where each token of the question and the answer looks in an image, in each layer, (B, L, h, Q + M, S - Q), and
    how much everything looks at everything, (B, L, h, S + M, S + M)."""

    memory: Tensor
    whole: Tensor


class SingleStream(nn.Module):
    """Answers so far (B, M), questions (B, Q), and images (B, C, H, W) or patches (B, N, C·P·P) -> logits of the token
    after each of an answer's (B, M, V).

    `encoder` is a Vision Transformer, whose blocks are all there are; its head is taken off. A question is filled up to
    `question_length` tokens, an answer has at most `max_length`, its end among them. Each token is told whether it is
    of an image or of a text. Image and question look at each other, an answer's tokens at these and at those before
    them. The rows that embed a token also score it. Raises ValueError for an encoder that is no Vision Transformer, has
    other weights than its head's that no text trains, or tells its blocks where patches lie.
    """

    def __init__(
        self,
        *,
        encoder: nn.Module,
        vocab_size: VocabSize,
        question_length: Length,
        max_length: Length,
        patch_size: Pixels | None,
    ):
        super().__init__()
        self.encoder = require_encoder(encoder, patch_size)
        width = self.encoder.head.in_features
        if self.encoder.positions_in_blocks:
            raise ValueError(
                "encoder.position and position_place may not act in each block, because texts have no place in the "
                "grid; use learned_1d, learned_2d or sincos_2d at the stem"
            )
        take_heads_off(self.encoder)
        self.vocab_size, self.question_length, self.max_length = vocab_size, question_length, max_length
        self.embed = TokenEmbedding(
            vocab_size=vocab_size,
            embed_dim=width,
            scaled=False,
            position=LearnedSequencePosition(embed_dim=width, max_length=question_length + max_length),
            norm=nn.Identity(),
            drop_rate=self.encoder.pos_drop.p,
        )
        self.type_embed = nn.Parameter(torch.empty(2, width))
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.head.weight = self.embed.tokens.weight
        self.embed.initialize()
        nn.init.normal_(self.type_embed, std=0.02)

    def read(self, question: Tensor, x: Tensor, grid: Grids | None = None) -> StreamInput:
        """Questions (B, Q), and images (B, C, H, W) or patches (B, N, C·P·P), and their grid where they have another
        one than the encoder was made for, or differ -> what is given, not yet seen by any block."""
        if question.shape[1] != self.question_length:
            raise ValueError(f"a question of {question.shape[1]} tokens is not filled up to {self.question_length}")
        image, grid = self.embed_images(x, grid)
        mask = mask_padding(None, grid, self.encoder.num_prefix_tokens)
        mask = None if mask is None else F.pad(mask, (0, self.question_length), value=True)
        return StreamInput(torch.cat([image, self.embed(question) + self.type_embed[TEXT]], dim=1), mask)

    def embed_images(self, x: Tensor, grid: Grids | None) -> tuple[Tensor, Grids]:
        """Images (B, C, H, W) or patches (B, N, C·P·P) -> their tokens (B, S - Q, D), told to be an image's, and their
        grid."""
        x, grid = self.encoder.embed(x, grid)
        return x + self.type_embed[IMAGE], grid

    def continue_answers(self, written: Tensor, given: StreamInput) -> Tensor:
        """Answers so far (R, M), and what was given -> logits of the token after each (R, M, V). Raises ValueError for
        more tokens than max_length."""
        R, M = written.shape
        if self.max_length < M:
            raise ValueError(f"an answer of {M} tokens is longer than max_length {self.max_length}")
        times = R // given.tokens.shape[0]
        text = self.embed(written, self.question_length) + self.type_embed[TEXT]
        x = torch.cat([given.tokens.repeat_interleave(times, dim=0), text], dim=1)
        mask = prefix_mask(x.shape[1] - M, M, x.device)
        if given.attn_mask is not None:
            mask = mask & F.pad(given.attn_mask.repeat_interleave(times, dim=0), (0, M), value=True)
        x = self.encoder.encode(x, attn_mask=mask)
        return self.head(self.encoder.fc_norm(x[:, -M:]))  # the last norm, wherever pooling puts it

    def forward(
        self,
        written: Tensor,
        question: Tensor,
        x: Tensor,
        grid: Grids | None = None,
        written_present: Tensor | None = None,
    ) -> Tensor:
        """(B, M), and what `read` takes -> (B, M, V). What fills an answer up stands behind it, and so is hidden from
        it already."""
        return self.continue_answers(written, self.read(question, x, grid))

    def begin_text(self, question: Tensor, x: Tensor, grid: Grids | None = None) -> "StreamState":
        """Begin an answer to each question."""
        return StreamState(self, self.read(question, x, grid))

    @torch.no_grad()
    def attention_maps(self, written: Tensor, given: StreamInput) -> StreamAttentionMaps:
        """Compute where all tokens look while what follows each token of `written` (B, M) is written."""
        with record_attention(self.encoder.blocks) as found:
            self.continue_answers(written, given)
        whole = torch.stack(list(found.values()), dim=1)
        image = given.tokens.shape[1] - self.question_length
        return StreamAttentionMaps(whole[..., image:, :image], whole)

    def represent(self, x: Tensor, grid: Grids | None = None) -> Tensor:
        """Tell what the blocks make of images alone (B, C, H, W) or patches (B, N, C·P·P). -> (B, D)"""
        x, grid = self.embed_images(x, grid)
        x = self.encoder.encode(x, grid, mask_padding(None, grid, self.encoder.num_prefix_tokens))
        return self.encoder.pool_tokens(x, grid)

    @property
    def depth(self) -> int:
        return self.encoder.depth

    def heads(self) -> list[nn.Linear]:
        return [self.head]

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that take no weight decay: biases, norms, tokens, type and position embeddings."""
        return {f"encoder.{name}" for name in self.encoder.no_weight_decay()} | {
            "type_embed",
            "embed.position.pos_embed",
        }

    def get_layer_id(self, name: str) -> int:
        """The layer a parameter belongs to: 0 the embeddings, those that also score among them, 1 to depth the blocks,
        depth+1 what follows them."""
        part, _, within = name.partition(".")
        return self.encoder.get_layer_id(within) if part == "encoder" else 0


class StreamState(TextState):
    """Answers to what is given, one each, by a model that reads all of it anew before each token."""

    def __init__(self, model: SingleStream, given: StreamInput):
        super().__init__(given.tokens.shape[0], model.vocab_size, model.max_length, given.tokens.device)
        self.model, self.given = model, given

    def logits(self, tokens: Tensor) -> Tensor:
        return self.model.continue_answers(tokens, self.given)

    def attention_maps(self, tokens: Tensor) -> StreamAttentionMaps:
        return self.model.attention_maps(tokens, self.given)


def prefix_mask(given: int, written: int, device: torch.device | None = None) -> Tensor:
    """True where a token may look: what is given at all of that, what is written at that and at what was written
    before. -> (given + written, given + written)"""
    mask = torch.ones(given + written, given + written, dtype=torch.bool, device=device).tril()
    mask[:, :given] = True
    return mask
