"""Records made into tables, figures and one HTML page. Nothing here takes part in a run, or needs torch."""
