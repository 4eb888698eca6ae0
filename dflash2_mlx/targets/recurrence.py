"""The gated-delta rule row by row in plain operations, for devices without mlx-lm's kernel. Knows mlx only.

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
"""

import mlx.core as mx

GROUP = 16  # rows whose graph is compiled at once, and whose states are kept together


def has_kernel(head_dim: int) -> bool:
    """Whether mlx-lm runs its Metal kernel for keys of this width, instead of plain operations."""
    return mx.metal.is_available() and mx.default_device() == mx.gpu and head_dim % 32 == 0


def stepwise(
    inputs: tuple[mx.array, ...], decay: mx.array, beta: mx.array, state: mx.array | None
) -> tuple[mx.array, list[mx.array]]:
    """Outputs [1, b, Hv, Dv], and the states after every row [1, m, Hv, Dv, Dk] of each group of m <= 16 rows.

    inputs: q, k [1, b, Hk, Dk] and v [1, b, Hv, Dv]; decay, beta: [1, b, Hv]; state None = zeros.
    Equal, bit for bit, to mlx-lm's plain operations, with fewer launches a row and no state computed twice.
    """
    q, k, v = inputs
    rows, heads, dim = v.shape[1:]
    if state is None:
        state = mx.zeros((1, heads, dim, k.shape[3]), dtype=mx.float32)
    outputs, states = [], []
    for start in range(0, rows, GROUP):
        out, after = _steps(state, tuple(part[:, start : start + GROUP] for part in (q, k, v, decay, beta)))
        state = after[:, -1]
        outputs.append(out)
        states.append(after)
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1), states


@mx.compile
def _steps(state: mx.array, inputs: tuple[mx.array, ...]) -> tuple[mx.array, mx.array]:
    """Outputs [1, b, Hv, Dv] and the states after every row [1, b, Hv, Dv, Dk] of inputs q, k, v, decay, beta.

    Compiled as a whole, so that it is built in one call.
    """
    q, k, v, decay, beta = inputs
    rows, repeats = v.shape[1], v.shape[2] // k.shape[2]
    if repeats > 1:
        q, k = mx.repeat(q, repeats, axis=2), mx.repeat(k, repeats, axis=2)
    parts = (k[..., None, :], v[..., None], decay[..., None, None], beta[..., None, None])
    current, states = state[:, None], []  # [1, 1, Hv, Dv, Dk]
    for key, value, kept, taken in zip(*(mx.split(part, rows, axis=1) for part in parts), strict=True):
        current = current * kept
        known = (current * key).sum(axis=-1, keepdims=True)
        current = current + key * ((value - known) * taken)
        states.append(current)
    after = mx.concatenate(states, axis=1)
    return (after * q[..., None, :]).sum(axis=-1).astype(q.dtype), after
