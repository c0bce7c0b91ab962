"""What a store tells of a run: its stages with their times and settings, and the commands that repeat them."""
