"""The local HTTP server: OpenAI's and Anthropic's routes over one engine thread. Sees no MLX."""
