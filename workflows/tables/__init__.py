"""The paper's tables: printed and measured figures side by side, and the notes beneath them."""
