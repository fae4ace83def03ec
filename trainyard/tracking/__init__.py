"""What a run records, here and in MLflow."""
