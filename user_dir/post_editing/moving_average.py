"""fairseq's moving average (``--store-ema``) is wrong for shared parameters and for pre-norm models.

It applies the decay d once for each name of a parameter, so that of shared embeddings becomes d³. It loads
each average as an old checkpoint, so that a pre-norm Transformer loses its last norm. With a constant decay,
the average also consists mostly of the initial parameters for 1/(1 − d) updates; with ``--ema-warmup`` the
decay is at most (t + 1)/(t + 10) at update t, as in TensorFlow and in the code of Correia and Martins 2019.
"""

from types import SimpleNamespace

from fairseq.models.ema.ema import EMA
from torch import nn

from ..guards import around


@around(EMA, "_step_internal")
def step_once(step, self, new_model, updates=None):
    """Average each parameter once per step, with a warm-up if the model asks for it."""
    if getattr(new_model, "ema_warmup", False) and updates is not None:
        self._set_decay(min(self.get_decay(), (updates + 1) / (updates + 10)))
    first, every = (dict(new_model.named_parameters(remove_duplicate=once)) for once in (True, False))
    again = every.keys() - first.keys()  # further names of shared parameters
    state = {name: value for name, value in new_model.state_dict().items() if name not in again}
    # Not the model's own method, which takes the average for an old checkpoint and removes norms.
    self.restore = lambda average, **_: nn.Module.load_state_dict(self.model, average, strict=False)
    try:
        return step(self, SimpleNamespace(state_dict=lambda: state), updates)
    finally:
        del self.restore
