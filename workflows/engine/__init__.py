"""The workflow engine: stages and steps, their execution on Ray, and what is shown meanwhile."""
