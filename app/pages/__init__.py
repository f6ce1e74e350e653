"""Pages: tables, figures, and one HTML page per run or comparison."""
