"""Exports trained models to other software: CTranslate2, Hugging Face's transformers and MLflow."""
