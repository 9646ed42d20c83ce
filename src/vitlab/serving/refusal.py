"""A request that is refused: an HTTP status, and one sentence for the client, without paths and traces."""


class Refused(Exception):  # noqa: N818
    """An answer other than the one that was asked for. It can be pickled, since decoders raise it in other
    processes."""

    def __init__(self, status: int, sentence: str):
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence
