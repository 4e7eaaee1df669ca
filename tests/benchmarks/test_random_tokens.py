"""The corpus of random tokens, read by fairseq's task."""

import numpy as np
import torch

from user_dir.benchmarks.peer_systems import STOCK, Workshop
from user_dir.benchmarks.random_tokens import WORDS, RandomCorpus


def test_fairseq_reads_it(tmp_path):
    corpus = RandomCorpus(tmp_path).write(500, seed=1)
    task = Workshop(corpus, "tiny", "fp32", 4096, 1, torch.device("cpu"), tmp_path).task
    task.load_dataset("train")
    found = task.dataset("train")
    assert len(found) == 500 and len(task.target_dictionary) == WORDS + task.target_dictionary.nspecial
    assert 18 < np.median(found.sizes[:, 0]) < 22 and (found.sizes[:, 0] == found.sizes[:, 1]).all()
    pair = found[0]
    assert pair["target"][-1] == task.target_dictionary.eos() and (pair["target"][:-1] > 3).all()
    assert not (pair["source"][:-1] == pair["target"][:-1]).all()


def test_bfloat16_is_not_for_tpus(tmp_path):
    corpus = RandomCorpus(tmp_path).write(500, seed=1)
    workshop = Workshop(corpus, "tiny", "bf16", 4096, 1, torch.device("cpu"), tmp_path)
    trainer = workshop.trainer(STOCK)
    assert trainer.device.type == "cpu" and next(trainer.model.parameters()).dtype == torch.bfloat16
