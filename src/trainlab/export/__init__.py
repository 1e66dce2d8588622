"""What a run gives other programs: tables, LaTeX, MLflow, Perfetto."""
