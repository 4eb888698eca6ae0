"""The gated-delta rule row by row in plain operations, for devices without mlx-lm's kernel. Knows mlx only.

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
"""

import mlx.core as mx


def has_kernel(head_dim: int) -> bool:
    """Whether mlx-lm runs its Metal kernel for keys of this width, instead of plain operations."""
    return mx.metal.is_available() and mx.default_device() == mx.gpu and head_dim % 32 == 0


def stepwise(
    inputs: tuple[mx.array, ...], decay: mx.array, beta: mx.array, state: mx.array | None
) -> tuple[mx.array, list[mx.array]]:
    """Outputs [1, b, Hv, Dv] and the state [1, Hv, Dv, Dk] after every row.

    inputs: q, k [1, b, Hk, Dk] and v [1, b, Hv, Dv]; decay, beta: [1, b, Hv]; state None = zeros.
    Equal, bit for bit, to mlx-lm's plain operations, with fewer views a row and no state computed twice.
    """
    q, k, v = inputs
    rows, values = v.shape[1], v.shape[2]
    repeats = values // k.shape[2]
    if repeats > 1:
        q, k = mx.repeat(q, repeats, axis=2), mx.repeat(k, repeats, axis=2)
    if state is None:
        state = mx.zeros((1, values, v.shape[3], k.shape[3]), dtype=mx.float32)
    parts = (q[..., None, :], k[..., None, :], v[..., None], decay[..., None, None], beta[..., None, None])
    outputs, states = [], []
    current = state[:, None]  # [1, 1, Hv, Dv, Dk]
    for row in zip(*(mx.split(part, rows, axis=1) for part in parts), strict=True):
        out, current = _step(row, current)
        outputs.append(out)
        states.append(current)
    return mx.concatenate(outputs, axis=1)[..., 0], [after[:, 0] for after in states]


@mx.compile
def _step(row: tuple[mx.array, ...], state: mx.array) -> tuple[mx.array, mx.array]:
    """Output [1, 1, Hv, Dv, 1] and new state [1, 1, Hv, Dv, Dk] of one row of (q, k, v, decay, beta)."""
    q, k, v, decay, beta = row
    state = state * decay
    known = (state * k).sum(axis=-1, keepdims=True)
    state = state + k * ((v - known) * beta)
    return (state * q).sum(axis=-1, keepdims=True).astype(q.dtype), state
