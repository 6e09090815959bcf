"""Tables, figures and pages: they read results and compute nothing.

``plots`` needs matplotlib, so that each part is imported by its own name.
"""

__all__ = ["page", "plots", "progress", "tables"]
