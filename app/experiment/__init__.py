"""Experiments: grids of cluster runs, each cell repeated, and the page that lays them beside published figures."""
