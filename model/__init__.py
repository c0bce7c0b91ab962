"""The Transformer (paper §3): tensors in, tensors out. Imports torch and the standard library only; no file I/O."""
