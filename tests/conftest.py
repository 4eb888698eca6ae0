"""Runs every test on the CPU backend, whose float32 results are exact enough to compare with `==`."""

import mlx.core as mx

mx.set_default_device(mx.cpu)
