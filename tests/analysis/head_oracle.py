"""An independent implementation of head statistics: loops over sentences, heads, queries and keys.

Shares no code with user_dir. A sentence is a dict: ``weights`` by attention type as nested arrays
(L, H, T, S) without padding, and the tokens ``source`` and ``target_input``.
"""

from __future__ import annotations

import math
import unicodedata

SIDES = {
    "encoder_self": ("source", "source"),
    "decoder_self": ("target_input", "target_input"),
    "decoder_context": ("target_input", "source"),
}


def is_punctuation(text: str) -> bool:
    return len(text) > 0 and all(unicodedata.category(letter)[0] == "P" for letter in text)


def words(tokens: list[str]) -> list[list[int]]:
    """Positions of the pieces of each word: ▁ starts a word; punctuation is a word of its own."""
    groups: list[list[int]] = []
    open_word = False
    for place, token in enumerate(tokens):
        if token == "</s>":
            open_word = False
            continue
        text = token[1:] if token.startswith("▁") else token
        alone = is_punctuation(text)
        only_mark = bool(groups) and [tokens[i] for i in groups[-1]] == ["▁"]
        joins = open_word and not token.startswith("▁") and (not alone or only_mark)
        if joins:
            groups[-1].append(place)
        else:
            groups.append([place])
        open_word = not alone
    return groups


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def possible(attention: str, query: int, key: int) -> bool:
    return attention != "decoder_self" or key <= query


def entropy(row: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in row if p > 0)


def head(sentences: list[dict], attention: str, layer: int, number: int, lists: dict[str, set[str]]) -> dict:
    """The columns of one head; ``lists`` has the interrogative words of ``source`` and ``target_input``."""
    densities, entropies, eos, punctuation = [], [], [], []
    all_pairs = all_positive = 0
    offsets: dict[int, list[float]] = {-1: [], 0: [], 1: []}
    attended = []
    merging, merging_split, inside, asked, declared = [], [], [], [], []
    histogram = [0] * 20
    for sentence in sentences:
        p = [[float(x) for x in row] for row in sentence["weights"][attention][layer][number]]
        query_side, key_side = SIDES[attention]
        queries, keys = sentence[query_side], sentence[key_side]
        pairs = positive = 0
        for q in range(len(queries)):
            for k in range(len(keys)):
                if possible(attention, q, k):
                    pairs += 1
                    positive += p[q][k] > 0
                else:
                    assert p[q][k] == 0
            entropies.append(entropy(p[q]))
            attended.append(sum(weight > 0 for weight in p[q]))
            eos.append(math.fsum(p[q][k] for k in range(len(keys)) if keys[k] == "</s>"))
            marks = [k for k in range(len(keys)) if is_punctuation(keys[k].lstrip("▁"))]
            punctuation.append(math.fsum(p[q][k] for k in marks))
            for offset, values in offsets.items():
                if 0 <= q + offset < len(keys) and possible(attention, q, q + offset):
                    values.append(p[q][q + offset])
        densities.append(positive / pairs)
        all_pairs, all_positive = all_pairs + pairs, all_positive + positive
        histogram[min(20 * positive // pairs, 19)] += 1

        if attention != "decoder_context":
            for word in words(queries):
                if len(word) == 1:
                    merging.append(p[word[0]][word[0]])
                else:
                    masses = [math.fsum(p[i][j] for j in word if j != i) for i in word]
                    merging.append(max(masses))
                    merging_split.append(max(masses))
                inside += [math.fsum(p[i][j] for j in word) for i in word]

        question = [k for k in range(len(keys)) if keys[k].lstrip("▁") == "?"]
        last_word = words(keys)[-1] if words(keys) else []
        stop = [last_word[-1]] if last_word and is_punctuation(keys[last_word[-1]].lstrip("▁")) else []
        for word in words(queries):
            text = "".join(queries[i].lstrip("▁") for i in word).lower()
            if text not in lists[query_side]:
                continue
            for values, target in ((asked, question), (declared, [] if question else stop)):
                for i in word:
                    if any(possible(attention, i, k) for k in target):
                        values.append(math.fsum(p[i][k] for k in target))
    average = mean(densities)
    return {
        "density": average,
        "density_of_pairs": all_positive / all_pairs,
        "density_std": math.sqrt(mean([(density - average) ** 2 for density in densities])),
        "density_histogram": histogram,
        "entropy": mean(entropies),
        "keys_per_query": mean(attended),
        "confidence_previous": mean(offsets[-1]),
        "confidence_current": mean(offsets[0]),
        "confidence_next": mean(offsets[1]),
        "subword_merging": mean(merging),
        "subword_merging_split": mean(merging_split),
        "subword_merging_confidence": mean(inside),
        "interrogation": mean(asked),
        "interrogation_declarative": mean(declared),
        "eos": mean(eos),
        "punctuation": mean(punctuation),
    }


def layer(sentences: list[dict], attention: str, number: int) -> dict:
    """The columns of one layer."""
    divergences, unions, densities = [], [], {}
    all_united = all_pairs = 0
    for sentence in sentences:
        heads = [[[float(x) for x in row] for row in head] for head in sentence["weights"][attention][number]]
        united = pairs = 0
        for q in range(len(heads[0])):
            rows = [p[q] for p in heads]
            mixture = [math.fsum(column) / len(rows) for column in zip(*rows)]
            if len(rows) > 1:
                js = entropy(mixture) - math.fsum(entropy(row) for row in rows) / len(rows)
                divergences.append(js / math.log(len(rows)))
            for k in range(len(heads[0][q])):
                if possible(attention, q, k):
                    pairs += 1
                    united += any(row[k] > 0 for row in rows)
        unions.append(united / pairs)
        all_united, all_pairs = all_united + united, all_pairs + pairs
        for i, p in enumerate(heads):
            densities.setdefault(i, []).append(sum(x > 0 for row in p for x in row) / pairs)
    return {
        "diversity": mean(divergences),
        "union_density": mean(unions),
        "union_density_of_pairs": all_united / all_pairs,
        "sorted_densities": sorted(mean(values) for values in densities.values()),
    }


def assert_agree(actual: dict, expected: dict, what: str, tolerance: float) -> None:
    """Each column of ``expected`` is in ``actual``, with an error of at most ``tolerance``."""
    for name, value in expected.items():
        pairs = list(zip(actual[name], value)) if isinstance(value, list) else [(actual[name], value)]
        assert not isinstance(value, list) or len(actual[name]) == len(value), f"{what} {name}"
        for mine, theirs in pairs:
            if theirs is None or mine is None:
                assert mine is theirs, f"{what} {name}: {mine}, not {theirs}"
            else:
                assert abs(mine - theirs) <= tolerance, f"{what} {name}: {mine}, not {theirs}"
