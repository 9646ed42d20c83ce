"""What a decoder block works on beside its own tokens: those written before, and what was read. A text that is taught
is there as a whole; one that is being written grows, and keys and values that were computed once are kept.

B batch, R sequences, M tokens, N memories, E width of a memory, h heads, d head width
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vitlab.layers.written_attention import padding_mask

KeysAndValues = tuple[Tensor, Tensor]


class NoCache:
    """A sequence that is there as a whole: nothing stands before it. `present` (R, M) is false where a shorter one is
    filled up."""

    length = 0  # tokens before those in hand

    def __init__(self, present: Tensor | None = None):
        self.attn_mask = None if present is None else padding_mask(present)

    def extend(self, k: Tensor, v: Tensor) -> KeysAndValues:
        """Keys and values (R, h, M, d) of the tokens in hand -> those of all tokens, 2 x (R, h, length + M, d)."""
        return k, v


class KVCache(NoCache):
    """A sequence of at most `capacity` tokens, written one after the other: those before keep their keys and values."""

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity = capacity
        self.length = 0
        self.keys = self.values = torch.empty(0)

    def extend(self, k: Tensor, v: Tensor) -> KeysAndValues:
        if self.length == 0:
            self.keys, self.values = (new.new_empty(*new.shape[:2], self.capacity, new.shape[3]) for new in (k, v))
        begin, more = self.length, k.shape[2]
        self.length += more
        self.keys.narrow(2, begin, more).copy_(k)
        self.values.narrow(2, begin, more).copy_(v)
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def select(self, rows: Tensor) -> None:
        """Go on with some of the sequences, by their numbers, (R') of any order and how often each."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class Memory:
    """What was read, (B, N, E). `attn_mask`, as in `Attention`, hides what only fills it up."""

    def __init__(self, tokens: Tensor, attn_mask: Tensor | None = None):
        self.tokens = tokens
        self.attn_mask = attn_mask

    def keys_and_values(self, make: Callable[[Tensor], KeysAndValues]) -> KeysAndValues:
        """Return the keys and values that a layer makes of it. -> 2 x (B, h, N, d)"""
        return make(self.tokens)


class CachedMemory(Memory):
    """The same for one layer, which makes its keys and values once."""

    def __init__(self, memory: Memory):
        super().__init__(memory.tokens, memory.attn_mask)
        self.kept: KeysAndValues | None = None

    def keys_and_values(self, make: Callable[[Tensor], KeysAndValues]) -> KeysAndValues:
        if self.kept is None:
            k, v = make(self.tokens)
            self.kept = k.contiguous(), v.contiguous()  # looked at again and again: half the time, on a CPU
        return self.kept
