"""Figures as data: what a browser draws, zooms and exports, made from the same records as the figures of ``plots``."""
