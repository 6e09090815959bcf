"""Ranks of residual networks: blocks I + W, and blocks I + U D whose skip passes over two layers."""

from hessmap.theory.residual.linear import ResidualSizes, single_layer_block_ranks, two_layer_block_ranks

__all__ = ["ResidualSizes", "single_layer_block_ranks", "two_layer_block_ranks"]
