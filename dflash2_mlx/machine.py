"""The only probe of the device. Imports MLX when asked, never on import."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """device: `gpu` on Metal, else `cpu`. name: the chip as MLX reports it, or the backend."""

    device: str
    name: str


def probe() -> Machine:
    """The device that MLX computes on here."""
    import mlx.core as mx

    if not mx.metal.is_available():
        return Machine("cpu", "MLX CPU backend")
    return Machine("gpu", str(mx.device_info().get("device_name", "Apple GPU")))
