"""The dial of a training: α's move towards the keys that were asked for, and the loss holds them back."""

import pytest
import torch
from fairseq.logging import metrics
from helpers import batch, build, loss

from user_dir.analysis.capture import captured_attention
from user_dir.attention import Alpha, AlphaConfig, attention
from user_dir.attention.dial import Dial, keys_per_query
from user_dir.errors import UserError

FLAGS = "--keys-per-query 2 --keys-per-query-max-loss 0.5"


def train(model, updates, losses, first=0):
    """Updates without an optimizer: only the dial changes anything, which counts keys in every tenth."""
    model.train()
    with metrics.aggregate("train"):
        model.after_update(first)
        for update in range(first + 1, first + updates + 1):
            if update % Dial.EVERY == 0:
                loss(model, batch())
            metrics.log_scalar("loss", torch.tensor(losses(update)))
            model.after_update(update)


def alphas(model):
    return torch.cat([alpha for layers in model.alphas().values() for alpha in layers])


def test_keys_are_counted_over_real_queries():
    weights = torch.tensor([[[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.8, 0.0]]]]).expand(1, 2, 3, 3)
    assert keys_per_query(weights).tolist() == [5 / 3, 5 / 3]
    assert keys_per_query(weights, torch.tensor([[False, False, True]])).tolist() == [1.5, 1.5]
    assert keys_per_query(weights[:, :, :0]).tolist() == [0, 0]


def test_padding_of_the_target_alone_hides_queries_of_context_attention():
    model = build(FLAGS + " --alpha-init 1.5 --dropout 0")
    train(model, 101, lambda update: 1.0)
    model.dial.dial.prepare(110)
    tokens = batch()["src_tokens"]
    target = tokens.flip(1)  # as long, padded at the other end
    with captured_attention(model, ["decoder_context"]) as captured:
        model.train()(tokens, None, target)
    counted = model.decoder.layers[0].encoder_attn.alpha.keys
    padding = target.eq(model.decoder.padding_idx)
    torch.testing.assert_close(counted, [keys_per_query(captured["decoder_context"][0], padding)])
    assert padding.any()


def test_heads_move_towards_their_own_keys():
    torch.manual_seed(1)
    query, key = 3 * torch.randn(2, 2, 2, 20, 8)
    query[:, 1] *= 10  # a head that attends to few keys anyway
    alpha = Alpha(2, AlphaConfig(alpha_init=1.01))
    dial = Dial([alpha], target=4.0, max_loss=0.01)
    for update in range(1, 801):
        dial.prepare(update)
        weights = attention(query, key, key, alpha(), need_weights=True)[1]
        if alpha.keys is not None:
            assert update > 100
            alpha.keys.append(keys_per_query(weights))
        dial.observe(1.0, update)
    keys = keys_per_query(attention(query, key, key, alpha(), need_weights=True)[1])
    assert abs(keys[0] - 4) < 0.5 and keys[1] < 4
    assert alpha().flatten()[0] > 1.1 and alpha().flatten()[1] < 1.01


def test_modules_with_unequal_numbers_of_heads_may_share_an_alpha():
    alpha = Alpha(2, AlphaConfig(alpha_init=1.01, alpha_tying="model"))
    dial = Dial([alpha], target=3.0, max_loss=0.01)
    dial.observe(1.0, 100)
    alpha.keys = [torch.tensor([2.0, 3.0]), torch.tensor([4.0, 4.0, 4.0, 4.0])]
    dial.observe(1.0, 110)
    torch.testing.assert_close(alpha().flatten(), torch.tensor([1.03]))


def test_before_the_first_update_losses_are_finite_as_a_moving_average_needs():
    assert build(FLAGS).state_dict()["dial.losses"].isfinite().all()


def test_a_training_moves_all_heads_until_the_loss_is_too_high():
    model = build(FLAGS)
    assert alphas(model).sub(1.01).abs().max() < 1e-6
    train(model, 130, lambda update: 1.0)
    assert (alphas(model) > 1.05).all()
    train(model, 140, lambda update: 3.0, first=130)
    assert (alphas(model) < 1.02).all()


def test_keys_of_a_training_are_those_of_the_analysis():
    model = build(FLAGS + " --alpha-init 1.5 --dropout 0")
    train(model, 101, lambda update: 1.0)
    model.dial.dial.prepare(110)
    with captured_attention(model, ["encoder_self"]) as captured:
        loss(model.eval(), batch())  # a validation, which does not count
        loss(model.train(), batch())
    layer = model.encoder.layers[0].self_attn
    expected = keys_per_query(captured["encoder_self"][0], batch()["src_tokens"] == 1)
    torch.testing.assert_close(layer.alpha.keys, [expected])


def test_losses_go_through_a_checkpoint():
    trained, resumed = build(FLAGS), build(FLAGS)
    train(trained, 120, lambda update: 1.0 + update / 1000)
    resumed.load_state_dict(trained.state_dict())
    for model in (trained, resumed):
        train(model, 100, lambda update: 1.2, first=120)
    assert torch.equal(alphas(trained), alphas(resumed))
    assert (alphas(trained) > 1.05).all()
    dense = build("--alpha-init 1.01").state_dict()
    build(FLAGS).load_state_dict(dense)  # --finetune-from-model


@pytest.mark.parametrize("flags", ["--keys-per-query 1", "--keys-per-query 2 --fixed-alpha 1.5"])
def test_what_it_cannot_do(flags):
    with pytest.raises((UserError, SystemExit)):
        build(flags)
