"""Honest measurement of a pair: rates, integrity, load and endurance. Sees frozen dataclasses, never an array."""
