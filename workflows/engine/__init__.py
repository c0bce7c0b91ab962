"""The workflow engine: stages and steps, their execution on Ray, and their progress on screen."""
