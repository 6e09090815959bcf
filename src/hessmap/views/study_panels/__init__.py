"""The panels of a study's view, one file for each kind of figure."""

from hessmap.views.study_panels.drawing import draw
from hessmap.views.study_panels.panels import Panel, panels

__all__ = ["Panel", "draw", "panels"]
