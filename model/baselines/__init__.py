"""The paper's competitors (Table 2), which the Transformer's loop trains and its search decodes."""
