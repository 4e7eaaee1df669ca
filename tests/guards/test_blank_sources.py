"""Blank lines stay blank, in the searches of fairseq and ours, and their neighbours as they were."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from helpers import batch, build, dictionary

import user_dir.models  # noqa: F401  installs the guards
from user_dir.decoding.generator import FastGenerator


def with_blank(left_pad: bool = True) -> dict:
    """A batch whose second source is blank."""
    sample = {"net_input": batch(left_pad)}
    sample["target"] = sample["net_input"].pop("target")
    words, source = dictionary(), sample["net_input"]["src_tokens"]
    source[1] = words.pad()
    source[1, -1 if left_pad else 0] = words.eos()
    sample["net_input"]["src_lengths"][1] = 1
    return sample


@pytest.mark.parametrize("kind", [FastGenerator, SequenceGenerator, SequenceGeneratorWithAlignment])
@pytest.mark.parametrize("left_pad", [True, False])
def test_blank_sources_have_blank_translations(kind, left_pad):
    words, model = dictionary(), build("--max-target-positions 20").eval()
    generator = kind([model], words, beam_size=2, max_len_b=5)
    blank, others = generator.generate([model], with_blank(left_pad)), batch(left_pad)
    target = others.pop("target")
    whole = generator.generate([model], {"net_input": others, "target": target})
    (empty,) = blank[1]
    assert empty["tokens"].tolist() == [words.eos()]
    assert (float(empty["score"]), empty["positional_scores"].tolist()) == (0, [0])
    assert len(empty["alignment"]) == 0
    assert len(whole[1][0]["tokens"]) > 1, "the same row with a text"
    for row in (0, 2):
        assert [each["tokens"].tolist() for each in blank[row]] == [
            each["tokens"].tolist() for each in whole[row]
        ]


def test_a_prescribed_beginning_is_continued():
    words, model = dictionary(), build("--max-target-positions 20").eval()
    generator = FastGenerator([model], words, beam_size=2, max_len_b=5)
    found = generator.generate([model], with_blank(), prefix_tokens=torch.tensor([[5], [6], [7]]))
    assert found[1][0]["tokens"][0] == 6 and len(found[1]) == 2
