"""What is measured of models: accuracy, drift, pictures."""
