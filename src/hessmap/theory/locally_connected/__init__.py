"""Ranks of locally connected networks."""
