"""Exports trained models to other software: CTranslate2 and MLflow."""
