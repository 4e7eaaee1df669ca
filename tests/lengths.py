"""A dataset for fairseq's batches, of sentences that are nothing but their lengths."""

import numpy as np
import torch
from fairseq.data import FairseqDataset


class Lengths(FairseqDataset):
    """In an order at random among equal lengths, as fairseq's training data has them."""

    can_reuse_epoch_itr_across_epochs = True

    def __init__(self, sizes: np.ndarray):
        self.sizes, self.epoch = sizes, None

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return {"id": torch.tensor(samples)} if samples else {}

    def ordered_indices(self):
        order = np.random.permutation(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def num_tokens(self, index):
        return int(self.sizes[index])

    def num_tokens_vec(self, indices):
        return self.sizes[indices]

    def size(self, index):
        return self.num_tokens(index)

    def set_epoch(self, epoch):
        self.epoch = epoch
