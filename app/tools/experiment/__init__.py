"""Grids of runs, each cell repeated, and the page that lays them beside published figures."""
