"""Strings: messages to a prompt, tokens to text, text to channels. Loads no MLX."""
