"""The papers, item by item: what each claims, where that lives in hessmap, and how far it was verified."""

from hessmap_research.papers.registry import STATUSES, Item, Paper, Status, papers, stored_outcomes

__all__ = ["STATUSES", "Item", "Paper", "Status", "papers", "stored_outcomes"]
