"""`make bench`: this project and its peers, side by side on one machine, as ratios."""
