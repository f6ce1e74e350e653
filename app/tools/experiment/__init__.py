"""Grids of runs, each cell repeated, and the page that compares them with published figures."""
