"""The latent alignment against a loop over all source positions."""

import torch
from helpers import MODEL_TOLERANCE, entmax_oracle
from torch.nn import functional

from user_dir.models import LatentAlignment

B, T, S, C, E, F, V = 3, 4, 6, 8, 10, 12, 15


def made(top_k=S, soft=False):
    module = LatentAlignment(C, E, F, top_k, dropout=0.1, soft=soft).double().eval()
    with torch.no_grad():
        module.layer_norm.weight.normal_()
        module.q_proj.weight *= 3  # so that some positions get no weight
    return module


def inputs():
    state = torch.randn(B, T, C, dtype=torch.float64).requires_grad_()
    source = torch.randn(S, B, E, dtype=torch.float64).requires_grad_()
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1, 4:] = padding[2, :3] = True
    return state, source, padding, torch.randn(V, C, dtype=torch.float64).requires_grad_()


def word(module, state, context, vocabulary):
    """log p(y | h, m) from the projected source position."""
    hidden = functional.relu(module.state_proj(state) + context)
    mixed = functional.layer_norm(
        state + module.out_proj(hidden), (C,), module.layer_norm.weight, module.layer_norm.bias
    )
    return (vocabulary @ mixed).log_softmax(0)


def scores_of(module, state, source, padding):
    """Attention scores (B, T, S)."""
    query, key = module.q_proj(state), module.k_proj(source).transpose(0, 1)
    return (query @ key.transpose(1, 2) / C**0.5).masked_fill(padding[:, None], float("-inf"))


def slow(module, state, source, padding, vocabulary):
    """log Σ_a π(a) p(y | a), one word and one position at a time; π is a constant."""
    prior = entmax_oracle(scores_of(module, state, source, padding), 1.5)
    expected = torch.empty(B, T, V, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            terms = [
                prior[b, t, a].log() + word(module, state[b, t], module.source_proj(source[a, b]), vocabulary)
                for a in range(S)
                if prior[b, t, a] > 0
            ]
            expected[b, t] = torch.stack(terms).logsumexp(0)
    return expected, prior


def test_the_sum_over_all_positions():
    module, arguments = made(), inputs()
    expected, prior = slow(module, *arguments)
    log_p, attention = module(*arguments)
    torch.testing.assert_close(log_p, expected, **MODEL_TOLERANCE)
    torch.testing.assert_close(attention, prior, **MODEL_TOLERANCE)
    assert (prior == 0).any() and (prior > 0).sum() > B * T
    torch.testing.assert_close(log_p.logsumexp(2), torch.zeros(B, T).double(), rtol=0, atol=1e-12)


def test_gradients():
    module = made()
    state, source, padding, vocabulary = inputs()
    chosen = torch.randint(V, (B, T, 1))

    def likelihood(*leaves):
        return module(leaves[0], leaves[1], padding, leaves[2])[0].gather(2, chosen)

    assert torch.autograd.gradcheck(likelihood, (state, source, vocabulary))
    likelihood(state, source, vocabulary).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in module.parameters())


def test_top_k_is_certified_where_it_is_the_whole_sum():
    module, arguments = made(), inputs()
    whole, prior = module(*arguments)
    for k in range(1, S):
        module.top_k = k
        module.train()
        module.dropout_module.p = 0.0
        capped, attention = module(*arguments)
        certified = (prior > 0).sum(2) < k
        torch.testing.assert_close(capped[certified], whole[certified], **MODEL_TOLERANCE)
        assert module.certified == certified.float().mean()
        assert module.support == (attention > 0).sum(2).float().mean()
        assert ((attention > 0).sum(2) <= k).all()
        torch.testing.assert_close(capped.logsumexp(2), torch.zeros(B, T).double(), rtol=0, atol=1e-12)
    assert certified.any()
    module.top_k = S
    module(*arguments)
    assert module.certified == 1


def test_the_posterior_is_bayes():
    module, arguments = made(), inputs()
    state, source, _, vocabulary = arguments
    target = torch.randint(V, (B, T))
    posterior = module.posterior(*arguments, target)
    _, prior = slow(module, *arguments)
    for b in range(B):
        for t in range(T):
            p = [
                word(module, state[b, t], module.source_proj(source[a, b]), vocabulary)[target[b, t]].exp()
                for a in range(S)
            ]
            joint = prior[b, t] * torch.stack(p)
            torch.testing.assert_close(posterior[b, t], joint / joint.sum(), **MODEL_TOLERANCE)


def test_soft_attention_reads_the_mean_position():
    module, arguments = made(top_k=2, soft=True), inputs()
    state, source, padding, vocabulary = arguments
    prior = entmax_oracle(scores_of(module, state, source, padding), 1.5)
    context = torch.einsum("bts,sbf->btf", prior, module.source_proj(source))
    scores, attention = module(*arguments)
    torch.testing.assert_close(attention, prior, **MODEL_TOLERANCE)  # not capped
    for b in range(B):
        for t in range(T):
            expected = word(module, state[b, t], context[b, t], vocabulary)
            torch.testing.assert_close(scores[b, t].log_softmax(0), expected, **MODEL_TOLERANCE)
