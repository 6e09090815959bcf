"""Studies as people see them: figures, tables, text in the terminal, pages."""
