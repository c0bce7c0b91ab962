"""The runs of workflows in a folder: names for what they made, their list, a comparison, and freeing disk."""
