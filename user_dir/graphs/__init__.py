"""Training without the host in the loop: forward, criterion and backward replayed from CUDA graphs.

A GPU computes a batch of a small model faster than Python launches its kernels. A CUDA graph records these
launches once and repeats them in one call, but always for tensors of the same shape at the same place. So

- batches are padded to few shapes, chosen from the data (:mod:`.shapes`), in buffers (:mod:`.static_batch`);
- gradients are added up at fixed places (:mod:`.gradients`);
- the first batch of a shape is computed on these as usual, then recorded, and later ones are replayed
  (:mod:`.recorder`); the first replay of a run is compared with the same batch without a graph
  (:mod:`.training`).

:mod:`.start` decides whether a training gets graphs. What a graph would get wrong is not recorded, and
:mod:`.replayable` says why. Everything else, from clipping to checkpoints, is fairseq's. Without a GPU,
everything but the recording can be run, and is tested.
"""

from .settings import add_graph_flag, graph_setting

__all__ = ["add_graph_flag", "graph_setting"]
