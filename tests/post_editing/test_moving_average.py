"""fairseq's moving average of the parameters, against averages computed here."""

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from helpers import batch, build
from torch import nn


class Net(nn.Module):
    def __init__(self, warmup: bool):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.second.weight = self.first.weight  # a shared parameter
        self.register_buffer("count", torch.zeros(1))
        self.ema_warmup = warmup


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("warmup", [False, True])
def test_each_parameter_is_averaged_once(warmup, fp32):
    net = Net(warmup)
    average = EMA(net, EMAConfig(store_ema=True, ema_decay=0.9, ema_fp32=fp32))
    expected = {name: value.clone() for name, value in net.state_dict().items()}
    for update in range(1, 30):
        with torch.no_grad():
            for value in (*net.parameters(), net.count):
                value += torch.randn(value.shape)
        average.step(net, update)
        decay = min(0.9, (update + 1) / (update + 10)) if warmup else 0.9
        assert average.get_decay() == decay
        for name, value in net.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value
    averaged = average.get_model().state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(averaged[name], value)
    assert averaged["first.weight"].data_ptr() == averaged["second.weight"].data_ptr()


@pytest.mark.parametrize("arch", ["transformer", "adaptively_sparse_transformer"])
def test_the_last_norms_of_a_pre_norm_model_are_kept(arch):
    model = build("--encoder-normalize-before --decoder-normalize-before", arch).eval()
    average = EMA(model, EMAConfig(store_ema=True, ema_decay=0.5))
    average.step(model, 1)
    assert average.model.state_dict().keys() == model.state_dict().keys()
    inputs = batch()
    del inputs["target"]
    torch.testing.assert_close(average.model(**inputs)[0], model(**inputs)[0])
