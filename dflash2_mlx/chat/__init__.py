"""A conversation in the terminal: what is typed, what is shown, what is remembered. Knows no MLX."""
