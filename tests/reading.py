"""A reader of digit lines, one of numbers in words, one of images beside texts, and two that are asked, small enough
for a test."""

from vitlab.data.generated.number_words import spell_number

SIZES = ["model.encoder.embed_dim=32", "model.encoder.depth=1", "model.encoder.num_heads=2", "model.decoder.depth=1"]
SIZES += ["model.decoder.embed_dim=32", "model.decoder.num_heads=2"]
READER = ["model=reader_xs8", *SIZES, "task=captioning", "data=digit_lines", "data.source.num_lines=300"]
READER += ["data.source.num_evaluated=50", "data.source.max_length=3", "global_batch_size=32"]
WRITER = ["model=transformer_mu", "task=sequence", "data=number_words", "data.source.num_numbers=1000"]
WRITER += ["global_batch_size=64", "trainer=cpu", "trainer.precision=32-true", "logger=none"]
READER += ["trainer=cpu", "trainer.precision=32-true", "logger=none"]
TOWERS = ["model=clip_xs8", *SIZES[:3], "model.text.embed_dim=16", "model.text.depth=1", "model.text.num_heads=2"]
TOWERS += ["task=contrastive", "data=digit_scenes", "data.source.num_scenes=320", "data.source.num_evaluated=51"]
TOWERS += ["global_batch_size=32", "trainer=cpu", "trainer.precision=32-true", "logger=none"]
QUESTIONS = ["task=answering", "data=digit_questions", "data.source.num_scenes=320", "data.source.num_evaluated=51"]
QUESTIONS += ["global_batch_size=32", "trainer=cpu", "trainer.precision=32-true", "logger=none"]
ASKED = {
    "single_stream": ["model=single_stream_xs8", *SIZES[:3], *QUESTIONS],
    "asked_reader": ["model=asked_reader_xs8", *SIZES, *QUESTIONS],
}


def write_numbers(file, count=1000):
    """Write a table of numbers in words and in digits, and give its name."""
    rows = [("input", "target"), *((spell_number(number), str(number)) for number in range(count))]
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)
