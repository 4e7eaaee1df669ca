"""Training without the host in the loop: forward, criterion and backward replayed from CUDA graphs.

A GPU computes a batch of a small model faster than Python launches its kernels. A CUDA graph records these
launches once and repeats them in one call, but always for tensors of the same shape at the same place. So

- batches are padded to few shapes, chosen from the data, in buffers (:mod:`.shapes`);
- gradients are added up at fixed places;
- the first batch of a shape is computed on these as usual, then recorded, and later ones are replayed
  (:mod:`.recorder`).

:mod:`.training` decides whether a training gets graphs, and replays its updates. Updates that a graph would
get wrong are not recorded; the log gives the reason. Everything else, from clipping to checkpoints, is
fairseq's. Without a GPU, everything but the recording can be run, and is tested.
"""
