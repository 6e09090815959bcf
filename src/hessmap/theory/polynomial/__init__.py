"""Ranks of networks with polynomial activations."""
