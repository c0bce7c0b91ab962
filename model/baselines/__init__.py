"""The paper's competitors (Table 2), trained by the same loop and decoded by the same search."""
