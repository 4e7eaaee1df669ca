"""α-entmax in operators of ONNX; needs onnxscript. See :func:`.op.onnx_translations`."""

from __future__ import annotations

from typing import TypeVar, Union

from onnxscript import BFLOAT16, DOUBLE, FLOAT, FLOAT16, script
from onnxscript import opset18 as op

Scores = TypeVar("Scores", bound=Union[FLOAT, FLOAT16, BFLOAT16, DOUBLE])
Alpha = TypeVar("Alpha", bound=Union[FLOAT, FLOAT16, BFLOAT16, DOUBLE])


@script()
def entmax(scores: Scores, alpha: Alpha, dim: int) -> Scores:
    """:func:`.op.entmax` in float32, by the methods of :mod:`.reference`.

    ONNX has neither log1p nor expm1, whose digits matter near α = 1.
    """
    one, tiny = op.Constant(value_float=1.0), op.Constant(value_float=1e-37)
    axis = op.Reshape(op.Constant(value_int=dim), op.Constant(value_ints=[1]))
    eps = op.Cast(alpha - op.CastLike(one, alpha), to=1)
    divisor = op.Max(eps, op.Constant(value_float=1e-20))
    z = op.Cast(scores, to=1)
    top = op.ReduceMax(z, axis, keepdims=1)
    empty = op.IsInf(top, detect_positive=0)
    low = op.Where(empty, one, top) * 0.0
    z = op.Where(empty, one * 0.0, z - top)
    # Newton's method, but bisection of [0, (1 − n^−ε)/ε] for ε > 1
    bisected = op.And(eps > one, low == low)
    keys = op.Cast(op.Gather(op.Shape(scores), axis), to=1)
    width = (one - op.Exp(op.Neg(divisor * op.Log(keys)))) / divisor + low
    lam = op.Where(bisected, width / 2.0, low)
    p = z
    for _ in range(40):
        x = op.Max(divisor * (z - lam), op.Neg(one))
        u = one + x
        log1p = op.Where(u == one, x, op.Log(u) * (x / (u - one)))  # Goldberg 1991, theorem 4
        p = op.Exp(log1p / divisor)
        mass = op.ReduceSum(p, axis, keepdims=1)
        slope = op.ReduceSum(p / op.Max(u, tiny), axis, keepdims=1)
        exponent = op.Neg(divisor * op.Log(mass))
        expm1 = op.Tanh(exponent / 2.0) * (op.Exp(exponent) + one)
        step = op.Neg(mass * expm1 / (divisor * slope))
        low = op.Where(mass >= one, lam, low)
        width = width / 2.0
        far = op.Or(bisected, step > (one + lam) * 5e-7)
        lam = op.Where(bisected, low + width / 2.0, lam + step)
        done = op.ReduceMax(op.Cast(far, to=1), keepdims=0) < one
        if done:
            break
    p = p / op.ReduceSum(p, axis, keepdims=1)
    p = op.Where(eps == one * 0.0, op.Softmax(z, axis=dim), p)
    return op.CastLike(op.Where(empty, one * 0.0, p), scores)
