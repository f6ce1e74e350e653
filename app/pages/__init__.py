"""Numbers to pages: tables, figures, one HTML page per run or comparison."""
