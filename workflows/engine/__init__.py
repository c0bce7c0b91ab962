"""The workflow engine: stages and steps, their execution on Ray, and the display of their progress."""
