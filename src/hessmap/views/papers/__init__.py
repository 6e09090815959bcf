"""The registry of the papers, shown: in the terminal, as a page with filters, and in the pages of ``docs/``."""
