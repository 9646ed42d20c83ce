"""An encoder-decoder that is asked: the decoder reads a question before it writes (Kim et al., 2022, arXiv:2111.15664,
Donut, section 3.2).

B batch, C channels, H W image height and width, P patch_size, N patches, Q question_length, M tokens of an answer, V
vocab_size
"""

import torch
from torch import Tensor, nn

from vitlab.layers import Grids
from vitlab.models.captioner import Captioner
from vitlab.models.decoder import AttentionMaps
from vitlab.models.text_state import CachedDecoderState, DecoderState
from vitlab.ranges import Length, Pixels


class AskedCaptioner(Captioner):
    """Questions (B, Q), and what a `Captioner` takes -> logits of the token after each of an answer's (B, M, V).

    The decoder's first `question_length` places are the question's, which is filled up to them; the others are the
    answer's. Raises ValueError as `Captioner`, and for a decoder without a place for an answer.
    """

    def __init__(self, *, encoder: nn.Module, decoder: nn.Module, patch_size: Pixels | None, question_length: Length):
        super().__init__(encoder=encoder, decoder=decoder, patch_size=patch_size)
        self.question_length = question_length
        if self.max_length < 1:
            raise ValueError(
                f"decoder.max_length {self.decoder.max_length} leaves no place for an answer after questions of "
                f"{question_length} tokens; make it larger"
            )

    @property
    def max_length(self) -> int:
        return self.decoder.max_length - self.question_length

    def forward(  # type: ignore[override]  # the question comes first
        self,
        written: Tensor,
        question: Tensor,
        x: Tensor,
        grid: Grids | None = None,
        written_present: Tensor | None = None,
    ) -> Tensor:
        if written_present is not None:
            written_present = torch.cat([torch.ones_like(question, dtype=torch.bool), written_present], dim=1)
        whole = torch.cat([self.check_question(question), written], dim=1)
        return self.decoder(whole, *self.read(x, grid), written_present)[:, self.question_length :]

    def check_question(self, question: Tensor) -> Tensor:
        """Raise ValueError for questions that are not filled up."""
        if question.shape[1] != self.question_length:
            raise ValueError(f"a question of {question.shape[1]} tokens is not filled up to {self.question_length}")
        return question

    def begin_text(  # type: ignore[override]  # the question comes first
        self, question: Tensor, x: Tensor, grid: Grids | None = None, *, cached: bool = True
    ) -> DecoderState:
        kind = CachedDecoderState if cached and self.decoder.causal else DecoderState
        return kind(self.decoder, *self.read(x, grid), self.check_question(question))

    def attention_maps(self, written: Tensor, question: Tensor, x: Tensor, grid: Grids | None = None) -> AttentionMaps:
        """Compute where the decoder looks while it reads the question and writes what follows each token of
        `written`."""
        return self.begin_text(question, x, grid).attention_maps(written)
