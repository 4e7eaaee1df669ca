import pytest
from helpers import batch, build, translation_task

from user_dir.benchmarks.ctranslate2_peer import Peer
from user_dir.decoding.generator import FastGenerator

LENGTH = 6


@pytest.mark.parametrize("order", ("--encoder-normalize-before --decoder-normalize-before", ""))
def test_the_peer_translates_as_our_softmax_model(order):
    pytest.importorskip("ctranslate2")
    model = build(f"{order} --attention-normalizer softmax --decoder-attention-heads 4").float().eval()
    model.decoder.output_projection.weight.data.mul_(3)
    sample, task = {"net_input": {"src_tokens": batch()["src_tokens"]}}, translation_task()
    words = task.target_dictionary
    # greedily: with a beam, CTranslate2 does not count the end of a translation that is cut off
    settings = {"beam_size": 1, "min_len": LENGTH, "max_len_a": 0, "max_len_b": LENGTH}
    ours = FastGenerator([model], words, **settings).generate([model], sample)
    found = Peer(model, task, 1, "float32")(sample, LENGTH)
    expected = [best[0]["tokens"].tolist() for best in ours]
    assert [[words.index(word) for word in each] + [words.eos()] for each in found] == expected
    for beam in (1, 3):
        assert all(len(each) == LENGTH for each in Peer(model, task, beam, "int8")(sample, LENGTH))
    assert next(model.parameters()).requires_grad  # the model is left as it was
