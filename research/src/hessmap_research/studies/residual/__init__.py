"""Residual networks: ranks of linear blocks, and what an activation and convolutions change."""
