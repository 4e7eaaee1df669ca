"""Translate sentences with the model in this folder, by onnxruntime, numpy and sentencepiece alone.

python onnx_translate.py "A sentence." "Another one."    # beam search with 5 hypotheses; --beam 1 is greedy
"""

import argparse
import json
import os
import re
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise onnxruntime tells Microsoft of its use

import numpy as np
import onnxruntime
import sentencepiece

PADDING, END, UNKNOWN = 1, 2, 3


class Translator:
    """Beam search, a sentence at a time; the score of a translation is log p per token."""

    def __init__(self, folder):
        self.encoder, self.step = (
            onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder_step")
        )
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        self.numbers = {symbol: number for number, symbol in enumerate(vocabulary["source"])}
        self.symbols, self.limit = vocabulary["target"], vocabulary["limit"]

    def __call__(self, sentence, beam):
        """The best translation found."""
        pieces = self.pieces.encode(" ".join(sentence.split()), out_type=str)
        if not pieces:
            return ""
        tokens = self.search([*(self.numbers.get(piece, UNKNOWN) for piece in pieces), END], beam)
        text = self.pieces.decode([self.symbols[token] for token in tokens])
        return re.sub(r"\s", " ", text)  # byte pieces may be a line break

    def search(self, source, beam):
        """The tokens of the best translation of the tokens ``source``."""
        source = np.array([source])
        (context,) = self.encoder.run(None, {"source": source})
        past = context[:, :, :, :, :0]  # as yet no token
        tokens, scores, found = np.array([[END]]), np.zeros(1, np.float32), []
        for length in range(1, self.limit + 2):
            rows = len(tokens)
            given = {"token": tokens[:, -1], "past": past, "context": context.repeat(rows, 2)}
            log_probs, past = self.step.run(None, {**given, "source": source.repeat(rows, 0)})
            log_probs[:, PADDING] = -np.inf
            if length == 1:
                log_probs[:, END] = -np.inf
            elif length > self.limit:
                log_probs[:, :END] = log_probs[:, END + 1 :] = -np.inf
            totals = scores[:, None] + log_probs
            best = np.argsort(-totals, axis=None, kind="stable")[: 2 * beam]  # half may be ends
            row, token = np.unravel_index(best, totals.shape)
            scores, ends = totals[row, token], token == END
            for i in np.flatnonzero(ends[:beam] & np.isfinite(scores[:beam])):
                found.append((scores[i] / length, tokens[row[i], 1:]))
            if len(found) >= beam:
                break
            on = np.flatnonzero(~ends)[:beam]
            tokens, scores = np.c_[tokens[row[on]], token[on]], scores[on]
            past = past[:, :, row[on]]
        return max(found[:beam], key=lambda each: each[0], default=(0, tokens[0, 1:]))[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sentences", nargs="+")
    parser.add_argument("--beam", type=int, default=5)
    args = parser.parse_args()
    translator = Translator(Path(__file__).resolve().parent)
    for sentence in args.sentences:
        print(translator(sentence, args.beam))
