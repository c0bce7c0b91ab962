"""Trained models for other software: CTranslate2 and MLflow."""
