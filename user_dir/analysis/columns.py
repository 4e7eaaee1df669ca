"""The statistics of heads and of layers: names and definitions; importable without torch."""

from __future__ import annotations

BINS = 20

COLUMNS = {
    "alpha": "α of the head",
    "density": "share of the possible query-key pairs with a weight above 0, mean over sentences",
    "density_of_pairs": "the same share over the pairs of all sentences together, as in the authors' code",
    "density_std": "standard deviation of the density over sentences",
    "density_histogram": f"number of sentences by density, in {BINS} equal bins over [0, 1]",
    "output_norm": "L2 norm of the head's slice of the output projection",
    "entropy": "entropy of a query's attention in nats, mean over queries",
    "confidence_previous": "weight on the previous position, mean over the queries that have one",
    "confidence_current": "weight on the current position, mean over the queries that have one",
    "confidence_next": "weight on the next position, mean over the queries that have one",
    "subword_merging": "largest total weight of one of a word's pieces on its other pieces (self-weight for "
    "a word of one piece), mean over words",
    "subword_merging_split": "subword_merging over words of several pieces only",
    "subword_merging_confidence": "weight within the query's own word, mean over the tokens of words",
    "interrogation": "weight of interrogative words on question marks, mean over their pieces",
    "interrogation_declarative": "weight of the same words on the final punctuation of sentences without a "
    "question mark",
    "eos": "weight on </s>, mean over queries",
    "punctuation": "weight on punctuation, mean over queries",
}
PART_COLUMNS = {
    "on_source": "weight on the source sentence before [SEP], mean over queries",
    "on_separator": "weight on [SEP], mean over queries",
    "on_translation": "weight on the machine translation after [SEP], mean over queries",
}
"""Only of post-editors, whose input has two parts."""
LAYER_COLUMNS = {
    "diversity": "Jensen-Shannon divergence of the heads / log(heads), from 0 to 1, mean over queries",
    "union_density": "density of the union of the heads' supports, mean over sentences",
    "union_density_of_pairs": "the same share over the pairs of all sentences together",
    "sorted_densities": "densities of the heads, ascending",
}
MASSES = frozenset(PART_COLUMNS) | {
    "confidence_previous",
    "confidence_current",
    "confidence_next",
    "subword_merging",
    "subword_merging_split",
    "subword_merging_confidence",
    "interrogation",
    "interrogation_declarative",
    "eos",
    "punctuation",
}
"""The columns that are shares of a query's attention: from 0 to 1 where its weights sum to 1."""
ROW_SUMS = ("one", "zero or one", "any")
"""What the weights of a query may sum to, by normalizer: ``zero or one`` for fixed patterns, which may have
no token to attend to; ``any`` number for ReLA."""


def definitions(statistics: dict) -> dict[str, str]:
    """What each column of a result of :meth:`Statistics.result` means."""
    parts = PART_COLUMNS if "on_source" in statistics["heads"][0] else {}
    return {**COLUMNS, **parts, **LAYER_COLUMNS}
