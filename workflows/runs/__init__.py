"""The runs of workflows in a folder: the record of each, names for what they made, their list and a comparison."""
