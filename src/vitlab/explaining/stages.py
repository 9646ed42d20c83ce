"""Describe each stage of a Vision Transformer: in a few sentences, as an equation, and by the line that computes it.

Equations are those of Dosovitskiy et al., 2021, arXiv:2010.11929, as they hold for the options of the model at hand.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from vitlab.explaining.captions import CaptionHead
from vitlab.explaining.facts import name_prefix, name_read, write_facts
from vitlab.explaining.source_lines import SourceLine, find_line
from vitlab.layers import Attention, Block, PatchEmbedding, RelativePosition, RotaryPosition, patchify
from vitlab.layers.attention import CancelScaling
from vitlab.layers.cross_attention import CrossAttention
from vitlab.layers.mlp import SwiGLU
from vitlab.layers.rotary_position import turn
from vitlab.layers.written_attention import attention_weights, mask_scores, written_attention
from vitlab.models import Captioner, Decoder, DistilledVisionTransformer, VisionTransformer
from vitlab.views.faithfulness import ORDERS, measure_faithfulness
from vitlab.views.relevance import combine_relevance

POOL_LINES = {"token": "x[:, 0]", "avg": "x.mean(dim=1)", "map": "self.mlp(self.norm(x))"}


class Stage(NamedTuple):
    """A section of the page: the name of its drawing, its title, text and equation in HTML, and lines of code."""

    view: str
    title: str
    text: str
    equation: str
    lines: list[SourceLine]


def var(name: str, below: str = "", above: str = "") -> str:
    """Write a variable of an equation with its indices."""
    return f"<var>{name}</var>" + f"<sub>{below}</sub>" * bool(below) + f"<sup>{above}</sup>" * bool(above)


def name_classes(model: VisionTransformer) -> str:
    return "captions" if isinstance(model.head, CaptionHead) else "classes"


def describe_head(model: VisionTransformer) -> str:
    other = "it has nothing to do with the heads of attention."
    if isinstance(model.head, CaptionHead):
        return (
            "A second Transformer, the text tower, has turned each caption into a list of numbers. At the end, one "
            "more learned matrix turns the stream into such a list as well, and the two are compared: the more alike "
            "their directions are, the better a caption fits. The cosine of the angle between them, times a learned "
            f"scale, is the number of a caption, its <b>logit</b>. This part is also called a head; {other}"
        )
    return (
        "At the end, one more learned matrix turns the stream into a number for each class, its <b>logit</b>: the "
        f"larger, the likelier. This part is called the <b>classifier head</b>; {other}"
    )


def name_norm(norm: nn.Module) -> str:
    return "RMSNorm" if isinstance(norm, nn.RMSNorm) else "LN"


def describe_stages(
    model: VisionTransformer,
    numbers: dict[str, int],
    probabilities: Callable[..., Any],
    evidence: bool,
    writer: Captioner | None = None,
) -> Iterator[Stage]:
    """Describe the stages of this model in the order of the forward pass, with its facts, and the function that turns
    logits into probabilities; `evidence`: with the stage of heat maps. Where it is the encoder of a `writer`, a decoder
    follows."""
    facts = write_facts(numbers)
    yield describe_patches(facts)
    yield describe_projection(facts)
    yield describe_positions(model)
    yield from describe_attention(model, facts)
    yield describe_block(model)
    if writer is None:
        yield from describe_result(model, facts, probabilities)
    else:
        yield describe_decoder(writer, facts)
    if evidence:
        yield describe_evidence()
    yield describe_cost()


def describe_patches(facts: dict[str, str]) -> Stage:
    side = f"{facts['patch_size']} × {facts['patch_size']}"
    return Stage(
        "patches",
        "Cut the image into patches",
        f"A Transformer takes a list of vectors, as of the words of a sentence. So the image of {facts['height']} × "
        f"{facts['width']} pixels is cut into {facts['patches']} squares of {side} pixels, row by row. Each square "
        "is a <b>patch</b>. Point at a patch to see its pixels, from 0 (black) to 255 (white).",
        f"{var('x')} ∈ ℝ<sup><var>H</var>×<var>W</var>×<var>C</var></sup> → {var('x', 'p')} ∈ "
        "ℝ<sup><var>N</var>×<var>P</var>²<var>C</var></sup> with <var>N</var> = <var>HW</var>/<var>P</var>²",
        [find_line(patchify, "permute(")],
    )


def describe_projection(facts: dict[str, str]) -> Stage:
    return Stage(
        "projection",
        "Turn each patch into a token",
        f"The {facts['patch_numbers']} pixel values of a patch are first scaled: the mean of the training images "
        "becomes 0, so that black becomes negative. Then one learned matrix <var>E</var> turns them into "
        f"{facts['dim']} numbers. This list of numbers is called a <b>token</b>. Each of its numbers is a weighted "
        "sum of all pixels of the patch. The weights form a small picture, a filter, and the sum is large when the "
        "patch is bright where the filter is positive and dark where it is negative. Sliding the filter over the "
        "image in steps of one patch is a strided convolution: it gives the same numbers, up to rounding.",
        f"{var('x', 'p', 'n')}{var('E')} + {var('b')} = conv<sub>stride <var>P</var></sub>({var('x')}, "
        f"{var('E')})<sub><var>n</var></sub> + {var('b')}",
        [find_line(PatchEmbedding.forward, "F.linear(")],
    )


def describe_positions(model: VisionTransformer) -> Stage:
    """Describe what tells a token its place: a vector that is added, rotary or relative positions, or nothing."""
    block: Any = model.blocks[0]
    kind, prefix, added = block.attn.rel_pos, name_prefix(model), model.pos_embed.numel() > 0
    text = "A token says what its patch shows, but not where the patch lies. "
    lines = [find_line(VisionTransformer.embed, "torch.cat("), find_line(VisionTransformer.embed, "self.position(")]
    if added:
        origin = "was learned in training" if model.position.learned else "is fixed: sines and cosines of the place"
        text += f"So each place has a vector of its own, which is added to the token. It {origin}. "
    if isinstance(kind, RotaryPosition):
        text += (
            "In each layer, queries and keys (see below) are turned by angles that depend on the place, so that their "
            "match depends on how far apart two patches lie. These are rotary positions. "
        )
        lines.append(find_line(turn, "torch.stack("))
    if isinstance(kind, RelativePosition):
        text += (
            "In each layer, a learned number for the distance between two patches is added to their score (see below). "
            "These are relative positions. "
        )
        lines.append(find_line(RelativePosition.bias, "F.pad("))
    if not (added or isinstance(kind, RotaryPosition | RelativePosition)):
        text += "This model is told no places: to it, an image is an unordered set of patches. "
    if added or isinstance(kind, RotaryPosition):
        text += (
            "The map compares the place of the patch you point at with all other places: 1 means the same direction. "
        )
    if prefix:
        text += (
            f"Before the tokens of the patches, this model puts: {', '.join(prefix)}. Such a token belongs to no "
            "patch. It starts the same for every image and collects information on its way through the model."
        )
    first = f"{var('x', 'class')}; " if "class token" in prefix else "<var>prefix</var>; " if prefix else ""
    body = f"[{first}{var('x', 'p', '1')}{var('E')}; …; {var('x', 'p', 'N')}{var('E')}]"
    body += f" + {var('E', 'pos')}" if added else ""
    if not isinstance(model.norm_pre, nn.Identity):
        body = f"{name_norm(model.norm_pre)}({body})"
    return Stage("positions", "Add the place of each patch", text, f"{var('z', '0')} = {body}", lines)


def describe_attention(model: VisionTransformer, facts: dict[str, str]) -> Iterator[Stage]:
    """Describe equations 5 to 8."""
    block: Any = model.blocks[0]
    kind = block.attn.rel_pos
    extra = "" if isinstance(block.attn.q_norm, nn.Identity) else " A norm brings queries and keys to a common length."
    extra += " Rotary positions are already applied to them." if isinstance(kind, RotaryPosition) else ""
    yield Stage(
        "qkv",
        "Ask, offer, hand over: query, key and value",
        "Now the tokens exchange what they know; this is <b>attention</b>. From each token, three learned matrices "
        "make three shorter lists of numbers. The <b>query</b> says what the token looks for. The <b>key</b> says "
        f"what it can be found by. The <b>value</b> is what it hands over. This is done {facts['heads']} times side "
        "by side, with matrices of their own: these are the <b>heads</b> of attention, and each can look for "
        f"something else. Its queries, keys and values have {facts['head_dim']} numbers.{extra}</p><p>Attention and "
        f"the network that follows it (see below) are one <b>layer</b>. This model has {facts['layers']} layers, one "
        "after the other, each with matrices of its own. So in later layers a token holds more than its own patch: "
        "also what it has collected of others. Choose a layer and a head in the bar above, a token that looks on the "
        "left, and a token that it looks at on the right.",
        f"[{var('q')}, {var('k')}, {var('v')}] = {name_norm(block.norm1)}({var('z')}) {var('U', 'qkv')}",
        [find_line(Attention.heads, "self.qkv(x)"), find_line(Attention.heads, "split(part")],
    )
    biased = isinstance(kind, RelativePosition)
    score_lines = [find_line(attention_weights, "scores = (q /")]
    yield Stage(
        "scores",
        "Does the key match the query?",
        "Multiply query and key number by number and add up the products. A large sum means: this is what I look "
        "for. The sum is divided by √<var>d</var>, so that it does not grow with the length of the lists."
        + " Then the learned number for the distance of the two patches is added."
        * biased,
        f"{var('s', 'ij')} = {var('q', 'i')} · {var('k', 'j')} / √<var>d</var>" + f" + {var('B', 'ij')}" * biased,
        [*score_lines, find_line(mask_scores, "scores + attn_mask")] if biased else score_lines,
    )
    yield Stage(
        "softmax",
        "Share out the attention",
        "The softmax turns the scores of one query into shares. All are positive, and together they make 100 %. "
        "Raising one score by 1 makes its share e ≈ 2.7 times as large relative to every other share. The small maps "
        "show the shares of the chosen token in every head of every layer, each on a scale of its own: the largest "
        "share is the most orange. Select one to see it large.",
        f"{var('A', 'ij')} = exp({var('s', 'ij')}) / Σ<sub><var>m</var></sub> exp({var('s', 'im')})",
        [find_line(attention_weights, "(blind, 0).softmax" if biased else "return scores.softmax(dim=-1)")],
    )
    yield Stage(
        "values",
        "Collect the values",
        "The head takes the value of every token, multiplied by its share, and adds them up. The results of all heads "
        "are put side by side, and one more learned matrix mixes them. So the token gets something of the tokens that "
        "it looked at. Those are named by their places, but from the second layer on they also carry what they have "
        "collected elsewhere: a large share does not mean that the pixels there matter.",
        f"{var('o', 'i')} = Σ<sub><var>j</var></sub> {var('A', 'ij')}{var('v', 'j')}, &ensp; MSA = "
        f"[{var('o', '', 'head 1')}; …; {var('o', '', 'head h')}] {var('U', 'msa')}",
        [find_line(written_attention, "F.dropout(A"), find_line(Attention.forward, "self.proj(x)")],
    )


def describe_block(model: VisionTransformer) -> Stage:
    """Describe equations 2 and 3."""
    block: Any = model.blocks[0]
    mlp: Any = type(block.mlp)
    gamma = "" if isinstance(block.ls1, nn.Identity) else "γ ⊙ "
    norm = name_norm(block.norm1)
    return Stage(
        "block",
        "Add it to the stream, and repeat",
        "The result of attention is <em>added</em> to the token. So a token is a stream that flows through all "
        "layers, and every layer adds to it. After attention, a network (the MLP) works on each token by itself: a "
        "matrix, a curved function, a second matrix. Its result is added as well. A norm brings the token to a "
        "common scale before each of them."
        + " Both results are multiplied by learned factors γ first."
        * bool(gamma)
        + " The bars compare lengths of vectors, for the token that looks: what flows in, what is added, what flows "
        "out. The lengths do not add up, because the vectors point in different directions.",
        f"{var('z′', 'l')} = {gamma}MSA({norm}({var('z', 'l−1')})) + {var('z', 'l−1')}, &ensp; {var('z', 'l')} = "
        f"{gamma}MLP({norm}({var('z′', 'l')})) + {var('z′', 'l')}",
        [
            find_line(Block.forward, "# equation 2"),
            find_line(Block.forward, "# equation 3"),
            find_line(mlp.forward, "F.silu(gate)" if mlp is SwiGLU else "self.act("),
        ],
    )


def describe_result(
    model: VisionTransformer, facts: dict[str, str], probabilities: Callable[..., Any]
) -> Iterator[Stage]:
    """Describe equation 4: read after every block, and at the end."""
    own, pool, reads = type(model), type(model.attn_pool), name_read(model)
    distilled = isinstance(model, DistilledVisionTransformer)
    blind = distilled or pool.timm_name == "token"
    unseen = " Before the first layer it knows nothing of the image: that row is the same for every image." * blind
    squash = "sigmoid" if "sigmoid" in probabilities.__code__.co_names else "softmax"
    lines = [find_line(own.classify_tokens, "self.apply_heads(" if distilled else "self.head(")]
    lines += [find_line(CaptionHead.forward, "@ self.captions.T")] * isinstance(model.head, CaptionHead)
    read_lines = [] if distilled else [find_line(pool.forward, POOL_LINES[str(pool.timm_name)])]
    if not isinstance(model.pre_logits, nn.Identity):
        read_lines.append(find_line(VisionTransformer.pool_tokens, "self.pre_logits("))
    yield Stage(
        "lens",
        "What would it say if it stopped here?",
        f"{describe_head(model)} It reads {reads}. Nothing keeps us from reading the stream earlier, after any layer, "
        "in the same way: this is called the <b>logit lens</b>. Each row is a layer, each column a class, each cell "
        f"a probability. Watch from which layer on the first column, the final answer, leads.{unseen} Head and "
        "temperature (see below) were fitted for the last layer alone, so earlier rows look more certain than they "
        "are: take them as a hint, not as a measurement.",
        f"{var('p', 'l')} = {squash}(head(norm({var('z', 'l')}))/<var>τ</var>), &ensp; <var>l</var> = 0 … <var>L</var>",
        [find_line(VisionTransformer.encode, "self.norm(x)"), *lines],
    )
    together = "turns them into probabilities that add up to 100 %"
    alone = "turns each into the probability of that class by itself"
    yield Stage(
        "result",
        "The answer",
        f"There is one logit for each of the {facts['classes']} {name_classes(model)}. The {squash} "
        f"{together if squash == 'softmax' else alone}. Before that, logits are divided by a temperature τ. It was "
        "fitted after training so that, as nearly as one number can, 9 in 10 of the answers given with 90 % are right. "
        "Below 1 it makes answers more certain, above 1 less.",
        f"{var('y')} = norm({var('z', 'L')}), pooled; &ensp; {var('p')} = {squash}(head({var('y')})/<var>τ</var>)",
        [*read_lines, *lines, find_line(probabilities, f"{squash}(")],
    )


def describe_decoder(model: Captioner, facts: dict[str, str]) -> Stage:
    """Describe what is written of the patches (Vaswani et al., 2017, arXiv:1706.03762, figure 1)."""
    block: Any = model.decoder.blocks[0]
    scaled = "" if isinstance(block.cross_attn.cancel_scaling, CancelScaling) else "/√<var>d</var>"
    return Stage(
        "writing",
        "Look at the image, and write",
        "A second Transformer, the <b>decoder</b>, writes the text, one token after the other. It has read what is "
        f"written so far. In each of its {facts['decoder_layers']} layers it asks the image: the query comes from the "
        "text, keys and values from the tokens of the image. This is called cross-attention. Then its head gives a "
        f"number for each of the {facts['vocabulary']} tokens that it knows, and the softmax turns them into "
        "probabilities. Select a token of the text to see where the decoder looked while it wrote it (the mean of its "
        "heads), and what else might have come.",
        f"{var('p')}({var('w', 'm')} | {var('w', '&lt;m')}, {var('x')}) = softmax(head({var('z', 'm')})), &ensp; "
        f"{var('A', 'mj')} = softmax<sub><var>j</var></sub>({var('q', 'm')} · {var('k', 'j')}{scaled})",
        [
            find_line(CrossAttention.attend, "self.product("),
            find_line(type(block).forward, "self.cross_attn("),
            find_line(Decoder.extend, "self.head("),
        ],
    )


def describe_evidence() -> Stage:
    return Stage(
        "evidence",
        "Which patches speak for a class?",
        "Attention shows where the model looks, but not what for. So we also ask how the logit of a class would "
        "change if a token looked a little more at another one: this is the slope ∇<var>A</var>. The share times its "
        "slope, where that is positive, is averaged over the heads and handed on from layer to layer in <var>R</var>, "
        "which begins with each token on its own. The row of what the head reads is the map: an estimate of how much "
        "each place speaks <em>for</em> the class. What speaks against it is left out. The last map, <b>attention "
        "rollout</b>, multiplies the shares of all layers, without slopes; it is the same for all classes.</p><p>The "
        "page measures how far to trust them. <b>Deletion</b> gives patches the mean color of the training images, the "
        "most orange first: if the model uses what the map marks, the probability falls soon, and the area under its "
        "curve is small. <b>Insertion</b> begins with a blurred image and makes patches sharp in this order: the "
        "probability should rise soon, and the area be large. Dashed: the mean of patches in "
        f"{ORDERS} random orders. No image of the training had such holes, so this is a hint as well.",
        f"{var('R')} ← {var('R')} + mean<sub>heads</sub>[(∇{var('A')} ⊙ {var('A')})<sup>+</sup>] {var('R')}",
        [
            find_line(combine_relevance, "clamp_min(0)"),
            find_line(measure_faithfulness, "torch.zeros_like(image)"),
            find_line(measure_faithfulness, "blur(image)"),
        ],
    )


def describe_cost() -> Stage:
    return Stage(
        "cost",
        "What a larger image costs",
        "Every token looks at every token. So twice as many tokens need four times as many scores; the work of the "
        "matrices in the layers only doubles. An image of twice the side has about four times as many tokens: 16 "
        "times as many scores, and 4 times the work of the matrices. (The first and the last matrix are not counted; "
        "they are small beside these.) Move the slider to count what a larger image would cost.",
        f"multiplications = <var>T</var> · {var('W', 'linear')} + 2 · <var>T</var>² · <var>D</var> · <var>L</var>",
        [find_line(attention_weights, "scores = (q /"), find_line(written_attention, "F.dropout(A")],
    )
