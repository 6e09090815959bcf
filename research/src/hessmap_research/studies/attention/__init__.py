"""Self-attention: ranks without softmax, blocks and ranks with it."""
